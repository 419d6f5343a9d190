// The longest path through an event graph, in topological order. An event on a cycle, or after one, never ends.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "pipeline/event_graph.h"

namespace trivet::pipeline {
namespace {

// The events that wait for each event, in one array.
struct Followers {
  explicit Followers(const EventGraph& graph) : first(graph.events.size() + 1, 0), events(graph.waits.size()) {
    for (const auto& [earlier, later] : graph.waits) ++first[earlier + 1];
    for (size_t n = 1; n < first.size(); ++n) first[n] += first[n - 1];
    std::vector<size_t> next(first.begin(), first.end() - 1);
    for (const auto& [earlier, later] : graph.waits) events[next[earlier]++] = later;
  }
  std::span<const int> of(int event) const {
    const size_t n = event;
    return std::span(events).subspan(first[n], first[n + 1] - first[n]);
  }
  std::vector<size_t> first;
  std::vector<int> events;
};

}  // namespace

std::vector<double> end_times(const EventGraph& graph, std::span<const double> durations, std::vector<double> starts) {
  const Followers followers(graph);
  std::vector<int> waits(graph.events.size(), 0);
  for (const auto& [earlier, later] : graph.waits) ++waits[later];
  std::vector<int> ready;
  for (size_t event = 0; event < waits.size(); ++event)
    if (waits[event] == 0) ready.push_back(static_cast<int>(event));

  starts.resize(waits.size(), 0);
  std::vector<double> ends(waits.size(), -1);
  while (!ready.empty()) {
    const int event = ready.back();
    ready.pop_back();
    const size_t n = event;
    ends[n] = starts[n] + durations[n];
    for (const int later : followers.of(event)) {
      const size_t l = later;
      starts[l] = std::max(starts[l], ends[n]);
      if (--waits[l] == 0) ready.push_back(later);
    }
  }
  return ends;
}

void expect_all_end(const Schedule& schedule, const Numbering& numbers, std::span<const double> ends) {
  std::vector<std::string> blocked;
  for (size_t rank = 0; rank < schedule.size(); ++rank)
    for (size_t at = 0; at < schedule[rank].size(); ++at) {
      if (ends[numbers.of(rank, at)] >= 0) continue;
      blocked.push_back(fmt::format("rank {} waits forever at {} (instruction {} of {})", rank, to_string(schedule[rank][at]),
                                    at, schedule[rank].size()));
      break;
    }
  if (!blocked.empty()) throw std::logic_error(fmt::format("schedule deadlocks: {}", fmt::join(blocked, "; ")));
}

}  // namespace trivet::pipeline
