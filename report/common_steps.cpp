#include "report/common_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "report/monitor/number_text.h"
#include "report/page_drawing.h"
#include "report/run_charts.h"

namespace trivet::report {
namespace {

using Curve = std::map<int64_t, double>;  // [step] value; the last one if a step was repeated

// Curves without steps do not count.
std::optional<int64_t> last_common_step(const std::vector<Curve>& curves) {
  const auto shortest = std::ranges::find_if(curves, [](const Curve& curve) { return !curve.empty(); });
  if (shortest == curves.end()) return std::nullopt;
  for (auto point = shortest->rbegin(); point != shortest->rend(); ++point)
    if (std::ranges::all_of(curves, [&](const Curve& curve) { return curve.empty() || curve.contains(point->first); }))
      return point->first;
  return std::nullopt;
}

Curve losses_of(const RunData& run, const ChartOptions& options) {
  Curve curve;
  for (const auto& [step, loss] : loss_curve(run, options))
    if (const auto number = static_cast<int64_t>(step); options.steps.has(number)) curve[number] = loss;
  return curve;
}

Curve validation_losses_of(const RunData& run, const StepRange& range) {
  Curve curve;
  for (const EvaluationPoint& point : run.evaluations.points())
    if (range.has(point.step)) curve[point.step] = point.loss;
  return curve;
}

// One text for each value; the best of several is named. Values that are not finite are none.
std::vector<std::string> texts_of(const std::vector<double>& values, bool less_is_better, std::string (*text)(double)) {
  std::vector<double> known;
  std::ranges::copy_if(values, std::back_inserter(known), [](double value) { return std::isfinite(value); });
  const bool differ = !known.empty() && std::ranges::min(known) < std::ranges::max(known);
  const double best = !differ ? 0 : less_is_better ? std::ranges::min(known) : std::ranges::max(known);
  std::vector<std::string> texts;
  for (const double value : values)
    texts.push_back(!std::isfinite(value) ? "none" : text(value) + (differ && value == best ? " (best)" : ""));
  return texts;
}

std::string loss_text(double loss) { return fmt::format("{:.4f}", loss); }

// The column of a table with a value of each curve.
std::vector<std::string> losses_at(int64_t step, const std::vector<Curve>& curves) {
  std::vector<double> values;
  for (const Curve& curve : curves) {
    const auto point = curve.find(step);
    values.push_back(point == curve.end() ? std::numeric_limits<double>::quiet_NaN() : point->second);
  }
  return texts_of(values, true, loss_text);
}

std::vector<std::string> speeds_of(std::span<const RunData> runs, const StepRange& range) {
  std::vector<double> speeds;
  for (const RunData& run : runs) {
    const double speed = median_targets_per_second(run, range);
    speeds.push_back(speed > 0 ? speed : std::numeric_limits<double>::quiet_NaN());
  }
  return texts_of(speeds, false, monitor::rate);
}

std::vector<std::string> steps_after(int64_t step, std::span<const RunData> runs) {
  std::vector<std::string> texts;
  for (const RunData& run : runs) {
    const int64_t more = run.steps.empty() ? 0 : run.steps.last().step - step;
    texts.push_back(run.steps.empty() ? "has no steps" : more > 0 ? monitor::with_commas(more) : "none");
  }
  return texts;
}

struct Columns {
  std::vector<std::vector<std::string>> rows;  // the first one has the names

  void add(const std::string& name, const std::vector<std::string>& texts) {
    rows.resize(texts.size() + 1);
    rows[0].push_back(name);
    for (size_t i = 0; i < texts.size(); ++i) rows[i + 1].push_back(texts[i]);
  }
};

}  // namespace

std::string common_steps_section(std::span<const RunData> runs, const ChartOptions& options) {
  std::vector<Curve> losses, validation_losses;
  std::vector<std::string> names;
  for (const RunData& run : runs) {
    names.push_back(run.name);
    losses.push_back(losses_of(run, options));
    validation_losses.push_back(validation_losses_of(run, options.steps));
  }
  const auto has_steps = [](const Curve& curve) { return !curve.empty(); };
  if (std::ranges::count_if(losses, has_steps) < 2) return "";
  const char* who = std::ranges::all_of(losses, has_steps) ? "all runs" : "all runs with steps";
  const char* evaluated = std::ranges::all_of(validation_losses, has_steps) ? "all runs" : "all runs with evaluations";
  const auto step = last_common_step(losses);
  if (!step) return fmt::format("<h2>At a step that {} have</h2>\n<p>There is none.</p>\n", who);
  const auto evaluation = last_common_step(validation_losses);
  const std::string speed = fmt::format("{}/s", targets_of(runs).short_many);
  const std::string at = monitor::with_commas(*step), first = monitor::with_commas(options.steps.first);
  const char* drawn = options.steps.last == INT64_MAX ? "" : " of those drawn";
  std::string text = fmt::format("<h2>At step {}, the last{} that {} have</h2>\n<p>{} is the median {}up to step {}.", at,
                                 drawn, who, speed, options.steps.first == 0 ? "" : fmt::format("from step {} ", first), at);
  Columns columns;
  columns.add("run", names);
  columns.add(options.mean_of == 1 ? "loss" : fmt::format("loss, mean of {} steps", monitor::with_commas(options.mean_of)),
              losses_at(*step, losses));
  if (evaluation) {
    columns.add("validation loss", losses_at(*evaluation, validation_losses));
    text += fmt::format(" Validation losses are those of step {}, the last evaluation{} that {} have.",
                        monitor::with_commas(*evaluation), drawn, evaluated);
  } else if (std::ranges::any_of(validation_losses, has_steps)) {
    text += fmt::format(" There is no evaluation that {} have.", evaluated);
  }
  columns.add(speed, speeds_of(runs, {options.steps.first, *step}));
  columns.add("steps after " + at, steps_after(*step, runs));
  return text + "</p>\n" + table_of_runs(columns.rows);
}

}  // namespace trivet::report
