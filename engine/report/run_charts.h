// The charts of a page: which numbers of one or several runs are drawn, and how.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/report/line_chart.h"
#include "engine/report/run_data.h"

namespace trivet::report {

// Loss, validation accuracy, learning rate, gradient norm, throughput, model FLOPs utilization or rate, memory, loss scale:
// those that have points.
std::vector<LineChart> charts_of(std::span<const RunData> runs);

// What the targets of all these runs are.
monitor::TargetWords targets_of(std::span<const RunData> runs);

// Of the steps whose times count (timed_steps.h); 0 if there is none.
double median_targets_per_second(const RunData& run);
// Model FLOPs utilization at this throughput of one step, in percent; 0 if the plan or the peak is not known.
double utilization_percent(const PlanFigures& plan, double step_ms);
double median_step_ms(const RunData& run);

// A figure with its drawing, legend and table. `id`: of the table, unique in the page.
std::string figure(const LineChart& chart, const std::string& id);

}  // namespace trivet::report
