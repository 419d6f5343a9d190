#include "pipeline/simulate.h"

#include <map>

#include "pipeline/transfers.h"

namespace trivet::pipeline {
namespace {

const Instruction& instruction_of(const Schedule& schedule, const Event& event) { return schedule[event.rank][event.at]; }

std::vector<double> durations_of(const Schedule& schedule, const EventGraph& graph, const SimulateOptions& options) {
  std::vector<double> durations;
  for (const Event& event : graph.events) {
    const auto& cost = event.instant ? options.issue : options.cost;
    durations.push_back(event.rank < 0 || !cost ? 0 : cost(event.rank, instruction_of(schedule, event)));
  }
  return durations;
}

// Returns, for each step, the event that it waits for longest, which is the one that ends last.
std::vector<int> latest_causes(const EventGraph& graph, std::span<const Interval> times, int steps) {
  std::vector<int> latest(steps, -1);
  for (const auto& [earlier, later] : graph.waits) {
    if (later >= steps) continue;
    int& known = latest[later];
    if (known < 0 || times[earlier].end > times[known].end) known = earlier;
  }
  return latest;
}

void add_waits(Timeline& timeline, const Schedule& schedule, const EventGraph& graph, std::span<const Interval> times,
               const Numbering& numbers, std::span<const double> starts) {
  const std::vector<int> causes = latest_causes(graph, times, numbers.count());
  for (size_t rank = 0; rank < schedule.size(); ++rank) {
    double free = starts[rank];
    for (size_t at = 0; at < schedule[rank].size(); ++at) {
      const size_t step = numbers.of(rank, at);
      const size_t cause = causes[step];
      if (causes[step] >= 0 && times[cause].end > free)
        timeline.waits[rank].push_back({graph.events[cause].queue, free, times[cause].end});
      // Communication without its own queue is a wait, too.
      const Instruction& i = schedule[rank][at];
      if (!graph.events[step].instant && !computes(i.op))
        timeline.waits[rank].push_back(
            {i.op == Op::Unshard ? Queue::Gather : Queue::Reduce, times[step].start, times[step].end});
      free = times[step].end;
    }
  }
}

bool is_of_all_replicas(const Schedule& schedule, const Event& event) {
  if (event.queue == Queue::Meet) return instruction_of(schedule, event).op == Op::SumLoss;
  return event.queue == Queue::Gather || event.queue == Queue::Reduce;
}

// Makes one copy of the graph per replica. Joint operations wait for everything that any replica waits for.
EventGraph replicated(const EventGraph& one, size_t copies, const Schedule& schedule) {
  EventGraph all;
  const auto count = static_cast<int>(one.events.size()), end = count * static_cast<int>(copies);
  for (int first = 0; first < end; first += count) {
    all.events.insert(all.events.end(), one.events.begin(), one.events.end());
    for (const auto& [earlier, later] : one.waits) {
      all.waits.emplace_back(first + earlier, first + later);
      if (!is_of_all_replicas(schedule, one.events[later])) continue;
      for (int other = 0; other < end; other += count)
        if (other != first) all.waits.emplace_back(other + earlier, first + later);
    }
  }
  return all;
}

}  // namespace

Timeline simulate(const Schedule& schedule, const SimulateOptions& options) {
  return simulate_replicas(schedule, {&options, 1}).front();
}

std::vector<Timeline> simulate_replicas(const Schedule& compute_order, std::span<const SimulateOptions> replicas) {
  const Schedule schedule =
      has_sends(compute_order) ? compute_order : insert_send_receive(compute_order, replicas.front().sends);
  const WorkIndex work(schedule, count_microbatches(schedule));
  const EventGraph graph = event_graph(schedule, work, replicas.front().overlap);
  const size_t count = graph.events.size();
  std::vector<double> durations, earliest(replicas.size() * count, 0);
  std::vector<std::vector<double>> starts;  // [replica][rank]
  for (const SimulateOptions& options : replicas) {
    const std::vector<double> own = durations_of(schedule, graph, options);
    starts.push_back(options.starts);
    starts.back().resize(schedule.size(), 0);
    for (size_t rank = 0; rank < schedule.size(); ++rank)
      if (!schedule[rank].empty()) earliest[durations.size() + work.numbers().of(rank, 0)] = starts.back()[rank];
    durations.insert(durations.end(), own.begin(), own.end());
  }
  const std::vector<double> ends =
      replicas.size() == 1 ? end_times(graph, durations, std::move(earliest))
                           : end_times(replicated(graph, replicas.size(), schedule), durations, std::move(earliest));
  expect_all_end(schedule, work.numbers(), ends);
  std::vector<Timeline> timelines;
  for (size_t replica = 0; replica < replicas.size(); ++replica) {
    std::vector<Interval> times;
    for (size_t n = replica * count; n < (replica + 1) * count; ++n) times.push_back({ends[n] - durations[n], ends[n]});
    timelines.push_back(make_timeline(schedule, graph, times, starts[replica]));
    add_waits(timelines.back(), schedule, graph, times, work.numbers(), starts[replica]);
  }
  return timelines;
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
    return computes(i.op) ? cost * shares[i.stage] : 0;
  };
}

}  // namespace trivet::pipeline
