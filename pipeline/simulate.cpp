#include "pipeline/simulate.h"

#include <map>

#include "pipeline/transfers.h"

namespace trivet::pipeline {
namespace {

const Instruction& instruction_of(const Schedule& schedule, const Event& event) {
  return schedule[static_cast<size_t>(event.rank)][event.at];
}

std::vector<double> durations_of(const Schedule& schedule, const EventGraph& graph, const SimulateOptions& options) {
  std::vector<double> durations;
  for (const Event& event : graph.events) {
    const auto& cost = event.instant ? options.issue : options.cost;
    durations.push_back(event.rank < 0 || !cost ? 0 : cost(event.rank, instruction_of(schedule, event)));
  }
  return durations;
}

// [step] Of the first of each rank, when the rank begins.
std::vector<double> earliest_times(const Schedule& schedule, const Numbering& numbers, std::span<const double> starts) {
  std::vector<double> earliest(static_cast<size_t>(numbers.count()), 0);
  for (size_t rank = 0; rank < schedule.size(); ++rank)
    if (!schedule[rank].empty()) earliest[static_cast<size_t>(numbers.of(rank, 0))] = starts[rank];
  return earliest;
}

// [step] What it waits for and ends last of all.
std::vector<int> latest_causes(const EventGraph& graph, std::span<const Interval> times, int steps) {
  std::vector<int> latest(static_cast<size_t>(steps), -1);
  for (const auto& [earlier, later] : graph.waits) {
    if (later >= steps) continue;
    int& known = latest[static_cast<size_t>(later)];
    if (known < 0 || times[static_cast<size_t>(earlier)].end > times[static_cast<size_t>(known)].end) known = earlier;
  }
  return latest;
}

void add_waits(Timeline& timeline, const Schedule& schedule, const EventGraph& graph, std::span<const Interval> times,
               const Numbering& numbers, std::span<const double> starts) {
  const std::vector<int> causes = latest_causes(graph, times, numbers.count());
  for (size_t rank = 0; rank < schedule.size(); ++rank) {
    double free = starts[rank];
    for (size_t at = 0; at < schedule[rank].size(); ++at) {
      const auto step = static_cast<size_t>(numbers.of(rank, at));
      const auto cause = static_cast<size_t>(causes[step]);
      if (causes[step] >= 0 && times[cause].end > free)
        timeline.waits[rank].push_back({graph.events[cause].queue, free, times[cause].end});
      // Without a queue of its own, communication is a wait, too.
      const Instruction& i = schedule[rank][at];
      if (!graph.events[step].instant && !computes(i.op))
        timeline.waits[rank].push_back(
            {i.op == Op::Unshard ? Queue::Gather : Queue::Reduce, times[step].start, times[step].end});
      free = times[step].end;
    }
  }
}

}  // namespace

Timeline simulate(const Schedule& compute_order, const SimulateOptions& options) {
  const Schedule schedule = has_sends(compute_order) ? compute_order : insert_send_receive(compute_order, options.sends);
  const Work work(schedule, count_microbatches(schedule));
  const EventGraph graph = event_graph(schedule, work, options.overlap);
  const std::vector<double> durations = durations_of(schedule, graph, options);
  std::vector<double> starts = options.starts;
  starts.resize(schedule.size(), 0);
  const std::vector<double> ends = end_times(graph, durations, earliest_times(schedule, work.numbers(), starts));
  expect_all_end(schedule, work.numbers(), ends);
  std::vector<Interval> times;
  for (size_t n = 0; n < ends.size(); ++n) times.push_back({ends[n] - durations[n], ends[n]});
  Timeline timeline = make_timeline(schedule, graph, times, starts);
  add_waits(timeline, schedule, graph, times, work.numbers(), starts);
  return timeline;
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
