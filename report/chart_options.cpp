#include "report/chart_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/printable.h"
#include "report/monitor/number_text.h"

namespace trivet::report {
namespace {

// No number if there is another character.
std::optional<int64_t> number_in(std::string_view text, int64_t if_empty) {
  if (text.empty()) return if_empty;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0 ? std::optional(number) : std::nullopt;
}

std::optional<StepRange> range_in(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || text.size() == 1) return std::nullopt;
  const auto first = number_in(text.substr(0, colon), 0), last = number_in(text.substr(colon + 1), INT64_MAX);
  return first && last && *first <= *last ? std::optional(StepRange{*first, *last}) : std::nullopt;
}

// All steps of steps and evaluations, in no order.
std::vector<int64_t> steps_of(std::span<const RunData> runs) {
  std::vector<int64_t> steps;
  for (const RunData& run : runs) {
    for (const StepPoint& point : run.steps.points()) steps.push_back(point.step);
    for (const EvaluationPoint& point : run.evaluations.points()) steps.push_back(point.step);
  }
  return steps;
}

}  // namespace

StepRange parse_step_range(std::string_view text, std::span<const RunData> runs) {
  const std::vector<int64_t> steps = steps_of(runs);
  const std::string known = steps.empty()
                                ? "the runs have no steps yet"
                                : fmt::format("the runs have the steps {} to {}", monitor::with_commas(std::ranges::min(steps)),
                                              monitor::with_commas(std::ranges::max(steps)));
  const std::string given = printable(std::string(text), 40);
  const auto range = range_in(text);
  if (!range)
    throw ConfigError(
        fmt::format("--steps: \"{}\" is not accepted; use FROM:TO, FROM: or :TO, with whole numbers and FROM not "
                    "larger than TO; {}",
                    given, known));
  if (std::ranges::none_of(steps, [&](int64_t step) { return range->has(step); }))
    throw ConfigError(fmt::format("--steps: \"{}\" has no step of a run; {}", given, known));
  return *range;
}

}  // namespace trivet::report
