// A timeline for people and for tools.
//
//   zb-h1: P 4, M 8, makespan 27, bubble 11.1 %          to_text: a column is a piece of time
//   rank 0  F0  F1  F2  F3          I0  W0  F4 ...
#pragma once

#include <span>
#include <string>

#include "pipeline/timeline.h"

namespace trivet::pipeline {

struct Caption {
  std::string schedule;  // "zb-h1"
  int ranks = 1, microbatches = 1, chunks = 1;
  std::string unit = {};  // of time: "ms"
};

// `zb-v: P 4, M 8, V 2, makespan 25.5, bubble 5.9 %`; V where it is not 1.
std::string to_string(const Caption& caption, const Timeline& timeline);

// A row a rank; stages are named where ranks have several. Computation only. ConfigError: it would have more than 67 million
// characters.
std::string to_text(const Timeline& timeline, const Caption& caption);

// The same as a picture: colours by kind, lighter for later chunks, the number of the microbatch in each box.
std::string to_svg(const Timeline& timeline, const Caption& caption);

// Several below each other, on one scale.
struct Panel {
  const Timeline& timeline;
  const Caption& caption;
};
std::string to_svg(std::span<const Panel> panels);

// JSON for chrome://tracing and Perfetto, a process a rank and a thread a queue, and one for what the rank waits for; a unit of
// time shows as a millisecond.
std::string to_chrome_trace(const Timeline& timeline);

}  // namespace trivet::pipeline
