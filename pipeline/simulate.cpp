#include "pipeline/simulate.h"

#include <algorithm>
#include <map>

#include "pipeline/transfers.h"

namespace trivet::pipeline {
namespace {

const Instruction& instruction_of(const Schedule& schedule, const Event& event) {
  return schedule[static_cast<size_t>(event.rank)][event.at];
}

std::vector<double> durations_of(const Schedule& schedule, const EventGraph& graph, const SimulateOptions& options) {
  std::vector<double> durations;
  for (const Event& event : graph.events)
    durations.push_back(event.rank < 0 || event.instant ? 0 : options.cost(event.rank, instruction_of(schedule, event)));
  return durations;
}

double busy(const std::vector<TimedInstruction>& rank) {
  double time = 0;
  for (const TimedInstruction& timed : rank)
    if (computes(timed.instruction.op)) time += timed.end - timed.start;
  return time;
}

Timeline timeline_of(const Schedule& schedule, const EventGraph& graph, const std::vector<double>& durations,
                     const std::vector<double>& ends) {
  Timeline timeline{.ranks = std::vector<std::vector<TimedInstruction>>(schedule.size())};
  for (size_t n = 0; n < graph.events.size(); ++n) {
    const Event& event = graph.events[n];
    if (event.rank < 0) continue;
    timeline.makespan = std::max(timeline.makespan, ends[n]);
    const Instruction& i = instruction_of(schedule, event);
    const bool shown = durations[n] > 0 || (computes(i.op) && event.queue == Queue::Compute);
    if (shown)
      timeline.ranks[static_cast<size_t>(event.rank)].push_back({i, event.queue, event.peer, ends[n] - durations[n], ends[n]});
  }
  double computing = 0;
  for (size_t rank = 0; rank < schedule.size(); ++rank) {
    auto& timed = timeline.ranks[rank];
    std::stable_sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) { return a.start < b.start; });
    computing += busy(timed);
    timeline.peak_microbatches.push_back(peak_microbatches(schedule[rank], Part::BackwardWeight));
  }
  const double available = static_cast<double>(schedule.size()) * timeline.makespan;
  timeline.bubble_fraction = available > 0 ? std::max(0.0, 1 - computing / available) : 0;
  return timeline;
}

}  // namespace

Timeline simulate(const Schedule& compute_order, const SimulateOptions& options) {
  const Schedule schedule = has_sends(compute_order) ? compute_order : insert_send_receive(compute_order, options.sends);
  const Work work(schedule, count_microbatches(schedule));
  const EventGraph graph = event_graph(schedule, work, options.overlap);
  const std::vector<double> durations = durations_of(schedule, graph, options);
  const std::vector<double> ends = end_times(graph, durations);
  expect_all_end(schedule, work.numbers(), ends);
  return timeline_of(schedule, graph, durations, ends);
}

std::function<double(int, const Instruction&)> even_costs(const Schedule& schedule, const ComputeCosts& costs) {
  const std::vector<Stage> stages = find_stages(schedule);
  std::map<int, int> chunks;  // by rank
  for (const Stage& stage : stages) ++chunks[stage.rank];
  std::vector<double> shares;  // by stage
  for (const Stage& stage : stages) shares.push_back(1.0 / chunks[stage.rank] / (stage.last_block - stage.first_block + 1));
  return [shares, costs](int, const Instruction& i) {
    double cost = 0;
    if (does(i.op, Part::Forward) || does(i.op, Part::Recompute)) cost += costs.forward;
    if (does(i.op, Part::BackwardInput)) cost += costs.backward_input;
    if (does(i.op, Part::BackwardWeight)) cost += costs.backward_weight;
    return computes(i.op) ? cost * shares[static_cast<size_t>(i.stage)] : 0;
  };
}

}  // namespace trivet::pipeline
