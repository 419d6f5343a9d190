#include "report/run_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/error.h"
#include "core/median.h"
#include "core/printable.h"
#include "report/monitor/number_text.h"
#include "report/timed_steps.h"

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
              .style = LineStyle::Dashed};
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

[[noreturn]] void refuse_logarithm(const RunData& run, const char* what, int64_t step, double value) {
  throw ConfigError(
      fmt::format("--log: {}: the {} of step {} is {:.5g}, which a logarithmic axis cannot show; leave out --log, or this step "
                  "with --steps",
                  printable(run.name), what, step, value));
}

void check_logarithms(std::span<const RunData> runs, const StepRange& range) {
  for (const RunData& run : runs) {
    for (const StepPoint& point : run.steps.points())
      if (range.has(point.step) && point.loss <= 0) refuse_logarithm(run, "loss", point.step, point.loss);
    for (const EvaluationPoint& point : run.evaluations.points())
      if (range.has(point.step) && point.loss <= 0) refuse_logarithm(run, "validation loss", point.step, point.loss);
  }
}

using Points = std::vector<std::pair<double, double>>;

// Each value becomes the mean of those of the last `steps` steps. A step without a value keeps none.
Points means_of(const Points& points, int64_t steps) {
  Points means;
  size_t first = 0;
  for (const auto& [step, value] : points) {
    while (points[first].first <= step - static_cast<double>(steps)) ++first;
    double sum = 0, count = 0;
    for (size_t i = first; i <= means.size(); ++i)
      if (std::abs(points[i].second) <= kMostDrawn) sum += points[i].second, ++count;
    means.emplace_back(step, std::abs(value) <= kMostDrawn ? sum / count : value);
  }
  return means;
}

// `what`: the lines of steps, if there are others.
LineChart smoothed(LineChart chart, int64_t steps, const std::string& what = "") {
  if (steps == 1) return chart;
  std::vector<Line> pale = chart.lines;
  for (Line& line : pale) line.style = LineStyle::Pale;
  for (Line& line : chart.lines) line.points = means_of(line.points, steps);
  chart.lines.insert(chart.lines.begin(), pale.begin(), pale.end());
  chart.note = fmt::format("{}mean of the last {} steps; pale: each step", what, monitor::with_commas(steps));
  return chart;
}

void leave_out_steps_outside(const StepRange& range, LineChart& chart) {
  const auto outside = [&](double step) { return !range.has(static_cast<int64_t>(step)); };
  for (Line& line : chart.lines) std::erase_if(line.points, [&](const auto& point) { return outside(point.first); });
  std::erase_if(chart.lines, [](const Line& line) { return line.style == LineStyle::Dashed && line.points.empty(); });
  std::erase_if(chart.marks, [&](const Mark& mark) { return outside(mark.step); });
}

LineChart loss_chart(std::span<const RunData> runs, const ChartOptions& options) {
  if (options.logarithmic_loss) check_logarithms(runs, options.steps);
  LineChart chart = chart_of_steps(runs, options.logarithmic_loss ? "Loss, logarithmic" : "Loss", "training", false,
                                   [](const RunData&, const StepPoint& p) { return p.loss; });
  chart = smoothed(std::move(chart), options.mean_of, "training: ");
  chart.logarithmic = options.logarithmic_loss;
  add_evaluations(chart, runs, [](const EvaluationPoint& p) { return p.loss; });
  if (runs.size() > 1 && chart.lines.back().style == LineStyle::Dashed)
    chart.note += chart.note.empty() ? "dashed: validation" : "; dashed: validation";
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

double median_of(const RunData& run, double StepPoint::*member, const StepRange& range = {}) {
  std::vector<double> values;
  for (const StepPoint& point : timed_steps(run).steps)
    if (range.has(point.step)) values.push_back(point.*member);
  return median_of_finite(std::move(values));
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
double median_targets_per_second(const RunData& run, const StepRange& range) {
  std::vector<StepPoint> steps = timed_steps(run).steps;
  std::erase_if(steps, [&](const StepPoint& step) { return !range.has(step.step); });
  const bool none = !steps.empty() && std::ranges::all_of(steps, [](const StepPoint& step) { return step.without_targets; });
  return none ? kNothing : median_of(run, &StepPoint::targets_per_second, range);
}
double median_step_ms(const RunData& run) { return median_of(run, &StepPoint::step_ms); }

Points loss_curve(const RunData& run, const ChartOptions& options) {
  Points points;
  for (const StepPoint& point : run.steps.points()) points.emplace_back(static_cast<double>(point.step), point.loss);
  return means_of(points, options.mean_of);
}

std::vector<LineChart> charts_of(std::span<const RunData> runs, const ChartOptions& options) {
  const auto member = [&](const std::string& title, const std::string& name, bool from_zero, double StepPoint::*value,
                          double unit = 1) {
    return chart_of_steps(runs, title, name, from_zero, [=](const RunData&, const StepPoint& p) { return p.*value / unit; });
  };
  const auto varying = [&](LineChart chart) { return smoothed(std::move(chart), options.mean_of); };
  const std::string speed = std::string(targets_of(runs).many) + "/s";
  std::vector<LineChart> charts{loss_chart(runs, options),
                                accuracy_chart(runs),
                                member("Learning rate", "learning rate", true, &StepPoint::lr),
                                varying(member("Gradient norm", "gradient norm", true, &StepPoint::grad_norm)),
                                varying(member("Throughput, " + speed, speed, true, &StepPoint::targets_per_second)),
                                varying(compute_chart(runs)),
                                member("Memory of rank 0, MiB", "MiB", true, &StepPoint::memory_bytes, 0x1p20)};
  const auto scaled = [](const StepPoint& p) { return p.loss_scale != 0; };
  if (std::ranges::any_of(runs, [&](const RunData& run) { return std::ranges::any_of(run.steps.points(), scaled); }))
    charts.push_back(member("Loss scale", "loss scale", true, &StepPoint::loss_scale));
  const auto counted = [](const StepPoint& p) { return p.fullest > 0; };
  if (std::ranges::any_of(runs, [&](const RunData& run) { return std::ranges::any_of(run.steps.points(), counted); }))
    charts.push_back(
        varying(member("Tokens of the fullest expert, times the mean", "times the mean", true, &StepPoint::fullest)));
  for (LineChart& chart : charts) leave_out_steps_outside(options.steps, chart);
  std::erase_if(charts, is_empty);
  return charts;
}

}  // namespace trivet::report
