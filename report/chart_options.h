// Options of the curves that a page draws (`trivet report`).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "report/run_data.h"

namespace trivet::report {

struct StepRange {
  int64_t first = 0, last = INT64_MAX;  // both are drawn

  bool has(int64_t step) const { return first <= step && step <= last; }
};

struct ChartOptions {
  int64_t mean_of = 1;  // steps: the curves that vary from step to step are means over so many, with each step as a pale line
  StepRange steps;
  bool logarithmic_loss = false;
};

// "100:200", "100:" or ":200". Throws ConfigError (--steps) for another text, and if no run has a step in the range.
StepRange parse_step_range(std::string_view text, std::span<const RunData> runs);

}  // namespace trivet::report
