#include "report/timed_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>

namespace trivet::report {
namespace {

constexpr size_t kMostShown = 8;  // ranges of steps in a note

// The steps of a start that no later start repeated: first to last.
struct StepsOfStart {
  int64_t ranks = 0;  // 0: not known
  int64_t first = 0, last = 0;
};

std::vector<StepsOfStart> steps_of_starts(const RunData& run) {
  std::vector<StepsOfStart> all;
  int64_t last = run.steps.empty() ? 0 : run.steps.last().step;
  for (auto start = run.known_starts.rbegin(); start != run.known_starts.rend(); ++start) {
    if (start->steps_done < last) all.push_back({start->ranks, start->steps_done + 1, last});
    last = std::min(last, start->steps_done);
  }
  std::ranges::reverse(all);
  return all;
}

std::string ranges_of(const std::vector<std::string>& ranges) {
  const size_t shown = std::min(ranges.size(), kMostShown);
  const std::string more = ranges.size() > shown ? fmt::format(" and {} more", ranges.size() - shown) : "";
  return fmt::format("{}{}", fmt::join(ranges.begin(), ranges.begin() + static_cast<std::ptrdiff_t>(shown), ", "), more);
}

std::string note_of(const RunData& run, const std::vector<StepsOfStart>& starts, int64_t ranks) {
  std::vector<std::string> timed, left_out;
  for (const StepsOfStart& start : starts) {
    if (start.ranks != ranks)
      left_out.push_back(
          fmt::format("{} to {} ({} rank{})", start.first, start.last, start.ranks, start.ranks == 1 ? "" : "s"));
    else if (start.first < start.last)
      timed.push_back(fmt::format("{} to {}", start.first + 1, start.last));
  }
  std::string note = fmt::format("started {} times: ", run.known_starts.size());
  note += timed.empty() ? "no steps are timed" : fmt::format("timed are the steps {}", ranges_of(timed));
  note += ", without the first of each start";
  if (!left_out.empty()) note += fmt::format(", and not the steps {}", ranges_of(left_out));
  return note;
}

}  // namespace

TimedSteps timed_steps(const RunData& run) {
  std::vector<StepsOfStart> starts = steps_of_starts(run);
  const std::vector<StepPoint> points = run.steps.points();
  TimedSteps timed;
  if (run.known_starts.size() < 2 || starts.empty()) {
    if (!points.empty()) timed.steps.assign(points.begin() + 1, points.end());
    return timed;
  }
  const int64_t ranks = run.plan.ranks > 0 ? run.plan.ranks : starts.back().ranks;
  for (StepsOfStart& start : starts)
    if (start.ranks == 0) start.ranks = ranks;
  auto start = starts.begin();
  for (const StepPoint& point : points) {
    while (start != starts.end() && start->last < point.step) ++start;
    if (start == starts.end()) break;
    if (point.step > start->first && start->ranks == ranks) timed.steps.push_back(point);
  }
  timed.note = note_of(run, starts, ranks);
  return timed;
}

}  // namespace trivet::report
