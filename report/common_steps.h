// Compares runs where all of them are: at the last step, and at the last evaluation, that they have in common.
#pragma once

#include <span>
#include <string>

#include "report/chart_options.h"

namespace trivet::report {

// A heading and a table, within the steps of `options`. Runs that have no steps there are listed, and do not count. Empty if
// fewer than two have some.
std::string common_steps_section(std::span<const RunData> runs, const ChartOptions& options);

}  // namespace trivet::report
