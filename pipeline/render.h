// A timeline for people and for tools.
//
//   zb-h1: P 4, M 8, makespan 27, bubble 11.1 %          to_text: a column is a piece of time
//   rank 0  F0  F1  F2  F3          I0  W0  F4 ...
#pragma once

#include <string>

#include "pipeline/simulate.h"

namespace trivet::pipeline {

struct Caption {
  std::string schedule;  // "zb-h1"
  int ranks = 1, microbatches = 1, chunks = 1;
};

// `zb-v: P 4, M 8, V 2, makespan 25.5, bubble 5.9 %`; V where it is not 1.
std::string to_string(const Caption& caption, const Timeline& timeline);

// A row a rank; stages are named where ranks have several. Computation only.
std::string to_text(const Timeline& timeline, const Caption& caption);

// The same as a picture: colours by kind, lighter for later chunks, the number of the microbatch in each box.
std::string to_svg(const Timeline& timeline, const Caption& caption);

// JSON for chrome://tracing and Perfetto, a process a rank and a thread a queue; a unit of time shows as a millisecond.
std::string to_chrome_trace(const Timeline& timeline);

}  // namespace trivet::pipeline
