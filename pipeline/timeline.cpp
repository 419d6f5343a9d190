#include "pipeline/timeline.h"

#include <algorithm>

#include "pipeline/work_index.h"

namespace trivet::pipeline {
namespace {

double busy(const std::vector<TimedInstruction>& rank) {
  double time = 0;
  for (const TimedInstruction& timed : rank)
    if (computes(timed.instruction.op)) time += timed.end - timed.start;
  return time;
}

}  // namespace

Timeline make_timeline(const Schedule& schedule, const EventGraph& graph, std::span<const Interval> times,
                       std::span<const double> starts) {
  Timeline timeline{.ranks = std::vector<std::vector<TimedInstruction>>(schedule.size())};
  timeline.waits.resize(schedule.size());
  for (size_t n = 0; n < graph.events.size(); ++n) {
    const Event& event = graph.events[n];
    if (event.rank < 0) continue;
    timeline.makespan = std::max(timeline.makespan, times[n].end);
    const Instruction& i = schedule[event.rank][event.at];
    const bool computation = computes(i.op) && event.queue == Queue::Compute;
    if (computation || (!event.instant && times[n].end > times[n].start))
      timeline.ranks[event.rank].push_back({i, event.queue, event.peer, times[n].start, times[n].end});
  }
  double computing = 0, available = 0;
  for (size_t rank = 0; rank < schedule.size(); ++rank) {
    auto& timed = timeline.ranks[rank];
    std::stable_sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) { return a.start < b.start; });
    computing += busy(timed);
    available += timeline.makespan - starts[rank];
    timeline.peak_microbatches.push_back(peak_microbatches(schedule[rank], Part::BackwardWeight));
  }
  timeline.bubble_fraction = available > 0 ? std::max(0.0, 1 - computing / available) : 0;
  return timeline;
}

}  // namespace trivet::pipeline
