#include "engine/report/run_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/median.h"
#include "engine/report/timed_steps.h"

namespace trivet::report {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

using Value = std::function<double(const RunData&, const StepPoint&)>;

LineChart chart_of_steps(std::span<const RunData> runs, const std::string& title, const std::string& name, bool from_zero,
                         const Value& value) {
  LineChart chart{.title = title, .lines = {}, .marks = {}, .from_zero = from_zero};
  for (size_t i = 0; i < runs.size(); ++i) {
    Line line{.name = runs.size() == 1 ? name : runs[i].name, .points = {}, .color = static_cast<int>(i)};
    for (const StepPoint& point : runs[i].steps.points())
      line.points.emplace_back(static_cast<double>(point.step), value(runs[i], point));
    chart.lines.push_back(std::move(line));
  }
  return chart;
}

void add_evaluations(LineChart& chart, std::span<const RunData> runs,
                     const std::function<double(const EvaluationPoint&)>& value) {
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].evaluations.empty()) continue;
    Line line{.name = runs.size() == 1 ? "validation" : runs[i].name + ", validation",
              .points = {},
              .color = runs.size() == 1 ? 2 : static_cast<int>(i),
              .dots = true};
    for (const EvaluationPoint& point : runs[i].evaluations.points())
      line.points.emplace_back(static_cast<double>(point.step), value(point));
    chart.lines.push_back(std::move(line));
  }
}

void add_marks(LineChart& chart, const RunData& run) {
  for (const Note& note : run.notes)
    if (note.what == "checkpoint")
      chart.marks.push_back({static_cast<double>(note.step), fmt::format("checkpoint of step {}", note.step)});
  for (const StepPoint& point : run.steps.points())
    if (point.skipped) chart.marks.push_back({static_cast<double>(point.step), fmt::format("step {} was skipped", point.step)});
}

LineChart loss_chart(std::span<const RunData> runs) {
  LineChart chart = chart_of_steps(runs, "Loss", "training", false, [](const RunData&, const StepPoint& p) { return p.loss; });
  add_evaluations(chart, runs, [](const EvaluationPoint& p) { return p.loss; });
  if (runs.size() == 1) add_marks(chart, runs[0]);
  return chart;
}

LineChart accuracy_chart(std::span<const RunData> runs) {
  LineChart chart{.title = "Validation accuracy, %", .lines = {}, .marks = {}};
  add_evaluations(chart, runs, [](const EvaluationPoint& p) { return 100 * p.accuracy; });
  std::erase_if(chart.lines, [](const Line& line) {
    return std::ranges::all_of(line.points, [](const auto& point) { return std::isnan(point.second); });
  });
  return chart;
}

// The utilization where all peaks are known, otherwise the rate.
LineChart compute_chart(std::span<const RunData> runs) {
  const bool utilization = std::ranges::all_of(runs, [](const RunData& run) { return utilization_percent(run.plan, 1) > 0; });
  if (utilization)
    return chart_of_steps(runs, "Model FLOPs utilization, %", "utilization", true,
                          [](const RunData& run, const StepPoint& p) { return utilization_percent(run.plan, p.step_ms); });
  return chart_of_steps(runs, "Model GFLOP/s of all ranks", "GFLOP/s", true, [](const RunData& run, const StepPoint& p) {
    return run.plan.flops_per_step > 0 && p.step_ms > 0 ? run.plan.flops_per_step / p.step_ms / 1e6 : kNothing;
  });
}

double median_of_finite(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  return median(std::move(values));
}

double median_of(const RunData& run, double StepPoint::*member) {
  std::vector<double> values;
  for (const StepPoint& point : timed_steps(run).steps) values.push_back(point.*member);
  return median_of_finite(std::move(values));
}

std::string legend(const LineChart& chart) {
  if (chart.lines.size() < 2 && chart.marks.empty()) return "";
  std::string text = "<p class=\"legend\">";
  for (const Line& line : chart.lines)
    text += fmt::format(
        "<span><svg aria-hidden=\"true\" viewBox=\"0 0 12 12\"><rect class=\"c{}\" width=\"12\" "
        "height=\"12\"{}/></svg>{}</span> ",
        line.color % 7, line.dots ? " rx=\"6\"" : "", escaped(line.name));
  if (!chart.marks.empty()) text += "<span>\u25bc checkpoint or skipped step</span>";
  return text + "</p>\n";
}

}  // namespace

double utilization_percent(const PlanFigures& plan, double step_ms) {
  const double most = static_cast<double>(plan.ranks) * plan.peak_flops * step_ms / 1e3;
  return most > 0 ? 100 * plan.flops_per_step / most : 0;
}

monitor::TargetWords targets_of(std::span<const RunData> runs) {
  const bool same = std::ranges::all_of(runs, [&](const RunData& run) { return run.targets == runs.front().targets; });
  return same ? runs.front().targets : monitor::kTargets;
}

// NaN if no timed step had targets.
double median_targets_per_second(const RunData& run) {
  const std::vector<StepPoint> steps = timed_steps(run).steps;
  const bool none = !steps.empty() && std::ranges::all_of(steps, [](const StepPoint& step) { return step.without_targets; });
  return none ? kNothing : median_of(run, &StepPoint::targets_per_second);
}
double median_step_ms(const RunData& run) { return median_of(run, &StepPoint::step_ms); }

std::vector<LineChart> charts_of(std::span<const RunData> runs) {
  const auto member = [&](const std::string& title, const std::string& name, bool from_zero, double StepPoint::*value,
                          double unit = 1) {
    return chart_of_steps(runs, title, name, from_zero, [=](const RunData&, const StepPoint& p) { return p.*value / unit; });
  };
  const std::string speed = std::string(targets_of(runs).many) + "/s";
  std::vector<LineChart> charts{loss_chart(runs),
                                accuracy_chart(runs),
                                member("Learning rate", "learning rate", true, &StepPoint::lr),
                                member("Gradient norm", "gradient norm", true, &StepPoint::grad_norm),
                                member("Throughput, " + speed, speed, true, &StepPoint::targets_per_second),
                                compute_chart(runs),
                                member("Memory of rank 0, MiB", "MiB", true, &StepPoint::memory_bytes, 0x1p20)};
  const auto scaled = [](const StepPoint& p) { return p.loss_scale != 0; };
  if (std::ranges::any_of(runs, [&](const RunData& run) { return std::ranges::any_of(run.steps.points(), scaled); }))
    charts.push_back(member("Loss scale", "loss scale", true, &StepPoint::loss_scale));
  std::erase_if(charts, is_empty);
  return charts;
}

std::string figure(const LineChart& chart, const std::string& id) {
  return fmt::format(
      "<figure>\n<figcaption>{}</figcaption>\n{}{}<details id=\"{}\"><summary>Figures</summary>\n{}</details>\n</figure>\n",
      escaped(chart.title), to_svg(chart), legend(chart), id, table_of_figures(figures_of(chart)));
}

}  // namespace trivet::report
