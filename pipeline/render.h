// Renders a timeline for people (text, SVG) and for tools (Chrome trace).
//
//   zb-h1: P 4, M 8, makespan 27, bubble 11.1 %          to_text: time runs along the columns
//   rank 0  F0  F1  F2  F3          I0  W0  F4 ...
#pragma once

#include <span>
#include <string>

#include "pipeline/timeline.h"

namespace trivet::pipeline {

struct Caption {
  std::string schedule;  // "zb-h1"
  int ranks = 1, microbatches = 1, chunks = 1;
  std::string unit = {};  // unit of time, such as "ms"
  bool is_step = false;   // a step of a run: waits have the colour of their cause, and communication is drawn below each row
};

// `zb-v: P 4, M 8, V 2, makespan 25.5, bubble 5.9 %`; V is left out if it is 1. A step without a pipeline has neither P nor a
// bubble: `measured: 28.01 ms, 1 microbatch, 74.7 % without computation`.
std::string to_string(const Caption& caption, const Timeline& timeline);

// Checks whether a drawing shows the instruction: it computes and takes time.
inline bool drawn(const TimedInstruction& timed) { return computes(timed.instruction.op) && timed.end > timed.start; }

// Draws one row per rank, with computation only; stages are named if ranks have several. Throws ConfigError if the text would
// have more than 67 million characters.
std::string to_text(const Timeline& timeline, const Caption& caption);

// Draws the same as a picture: boxes have a colour for each kind, lighter for later chunks, and the number of the microbatch.
std::string to_svg(const Timeline& timeline, const Caption& caption);

// Draws several timelines below each other, on one scale.
struct Panel {
  const Timeline& timeline;
  const Caption& caption;
};
std::string to_svg(std::span<const Panel> panels);

// Writes JSON for chrome://tracing and Perfetto. Each rank is a process with one thread per queue or link and one for its
// waits; one unit of time is shown as one millisecond.
std::string to_chrome_trace(const Timeline& timeline);

}  // namespace trivet::pipeline
