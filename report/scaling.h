// Computes how the throughput of a job grows with its ranks, from runs of it on different numbers of them.
//
//   speedup      samples/s, divided by those of the run with the fewest ranks
//   ideal        ranks, divided by the ranks of that run
//   efficiency   speedup / ideal
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "report/run_data.h"

namespace trivet::report {

struct ScalingRow {
  std::string run;  // its name
  int64_t ranks = 0;
  int64_t samples_per_step = 0;
  double step_ms = 0;  // the median of the steps whose times count (timed_steps.h)
  double samples_per_second = 0, targets_per_second = 0;
  monitor::TargetWords targets = monitor::kTokens;
  double speedup = 0, ideal = 0, efficiency = 0;
  std::string note;  // the steps that count, if the run was started several times; else empty
};

// Strong: all runs have the same batch. Weak: the batch of each rank is the same.
enum class ScalingKind : uint8_t { Strong, Weak, Mixed };

// By ascending ranks; of runs with as many ranks, the first stays first. Throws DataError (Usage) if there are fewer than two
// runs, or if one is not known well enough: it needs a plan and two steps.
std::vector<ScalingRow> scaling_of(std::span<const RunData> runs);
ScalingKind kind_of(const std::vector<ScalingRow>& rows);

// A table, with a line that says of which kind it is, and one for each run that was started several times.
std::string to_text(const std::vector<ScalingRow>& rows);
std::string to_json(const std::vector<ScalingRow>& rows);
// The section of a page: a drawing and the table.
std::string to_section(const std::vector<ScalingRow>& rows);

}  // namespace trivet::report
