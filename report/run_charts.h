// The charts of a page: which numbers of one or several runs are drawn, and how.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "report/chart_options.h"
#include "report/line_chart.h"
#include "report/run_data.h"

namespace trivet::report {

// Loss, validation accuracy, learning rate, gradient norm, throughput, model FLOPs utilization or rate, memory, loss scale:
// those that have points. Throws ConfigError (--log) if a loss that would be drawn has no logarithm.
std::vector<LineChart> charts_of(std::span<const RunData> runs, const ChartOptions& options = {});

// The training loss as the chart of the losses shows it.
std::vector<std::pair<double, double>> loss_curve(const RunData& run, const ChartOptions& options);

// Returns the words for the targets of all these runs.
monitor::TargetWords targets_of(std::span<const RunData> runs);

// Counts only the steps in `range` that were timed (timed_steps.h); returns 0 if there is none.
double median_targets_per_second(const RunData& run, const StepRange& range = {});
// Model FLOPs utilization at this throughput of one step, in percent; 0 if the plan or the peak is not known.
double utilization_percent(const PlanFigures& plan, double step_ms);
double median_step_ms(const RunData& run);

}  // namespace trivet::report
