#include "pipeline/measure.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "pipeline/meetings.h"
#include "pipeline/transfers.h"
#include "pipeline/work_index.h"

namespace trivet::pipeline {
namespace {

void extend(std::optional<Interval>& interval, const Interval& part) {
  interval = interval ? Interval{std::min(interval->start, part.start), std::max(interval->end, part.end)} : part;
}

// The times that were recorded for one instruction.
struct Step {
  Interval whole;
  double ready = -std::numeric_limits<double>::infinity();  // end of the last wait; sums over the tensor axis are computation
  double waited = 0;                                        // total time of the waits that the graph has
  std::optional<Interval> work, met;
};

struct RankSteps {
  RankSteps(const Program& program, const Recording& recording, Overlap overlap) : steps(program.size()) {
    const bool gathers = std::any_of(program.begin(), program.end(), [](const Instruction& i) { return i.op == Op::Unshard; });
    for (const Recording::Span& span : recording.spans) {
      if (span.at == Recording::kUpdate) continue;
      Step& step = steps.at(span.at);
      const Interval interval{span.start, span.end};
      if (span.kind == Recording::Kind::Step) step.whole = interval;
      if (span.kind == Recording::Kind::Work) extend(step.work, interval);
      if (span.kind != Recording::Kind::Wait || is_of_layers(span.queue)) continue;
      step.ready = std::max(step.ready, span.end);
      if (span.queue == Queue::Meet) extend(step.met, interval);
      // A gather or reduction without its own queue is part of the instruction. A gather in a program without UNSHARD publishes
      // updated weights; the graph does not have it.
      const bool own = (span.queue == Queue::Gather || span.queue == Queue::Reduce) && overlap == Overlap::None;
      const bool published = span.queue == Queue::Gather && !gathers;
      if (!own && !published) step.waited += span.end - span.start;
    }
    for (Step& step : steps) step.ready = std::max(step.ready, step.whole.start);
  }
  std::vector<Step> steps;
};

class Measurement {
 public:
  Measurement(const Schedule& schedule, const RecordedStep& step, Overlap overlap, Clocks clocks = Clocks::Shared)
      : schedule_(schedule), clocks_(clocks) {
    for (size_t rank = 0; rank < schedule.size(); ++rank) ranks_.emplace_back(schedule[rank], step.at(rank), overlap);
    for (const LinkTransfers& link : find_links(schedule, find_stages(schedule)))
      for (const Transfer& t : link) receives_[{t.from, t.send_at}] = {t.to, t.receive_at};
    for (const Meeting& meeting : find_meetings(schedule)) meetings_[meeting.front()] = meeting;
  }

  Interval time_of(const Event& event) const {
    if (event.rank < 0) return {};
    const Step& own = step(event.rank, event.at);
    switch (event.queue) {
      case Queue::Send: return transfer(event);
      case Queue::Meet: return meeting({static_cast<size_t>(event.rank), event.at});
      case Queue::Compute: return instruction(event, own);
      default: return own.work.value_or(Interval{own.ready, own.ready});
    }
  }

  // Returns the time that the program itself spent on an instruction.
  double busy(const Event& event) const {
    const Step& own = step(event.rank, event.at);
    return own.whole.end - own.whole.start - own.waited;
  }

 private:
  const Step& step(int rank, size_t at) const { return ranks_[rank].steps[at]; }

  Interval instruction(const Event& event, const Step& own) const {
    const Op op = schedule_[event.rank][event.at].op;
    if (op == Op::Tie || op == Op::SumLoss) return {own.whole.end, own.whole.end};
    if (event.instant) {  // a REDUCE of several groups also waits for the first of them
      const double point = own.work ? std::min(own.ready, own.work->start) : own.ready;
      return {point, point};
    }
    return {computes(op) ? own.ready : own.whole.start, own.whole.end};
  }

  Interval transfer(const Event& event) const {
    if (clocks_ == Clocks::Apart) return step(event.rank, event.at).work.value();
    const auto [to, receive_at] = receives_.at({event.rank, event.at});
    return together({step(event.rank, event.at).work, step(to, receive_at).work});
  }

  Interval meeting(std::pair<size_t, size_t> first) const {
    std::vector<std::optional<Interval>> parts;
    const Step& own = step(static_cast<int>(first.first), first.second);
    if (clocks_ == Clocks::Apart) return own.met.value_or(Interval{own.ready, own.ready});
    for (const auto& [rank, at] : meetings_.at(first)) parts.push_back(step(static_cast<int>(rank), at).met);
    return parts.front() ? together(parts) : Interval{own.ready, own.ready};  // alone: nobody to wait for
  }

  static Interval together(const std::vector<std::optional<Interval>>& parts) {
    Interval all{-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
    for (const auto& part : parts) all = {std::max(all.start, part.value().start), std::min(all.end, part.value().end)};
    return {all.start, std::max(all.start, all.end)};
  }

  const Schedule& schedule_;
  Clocks clocks_;
  std::vector<RankSteps> ranks_;
  std::map<std::pair<int, size_t>, std::pair<int, size_t>> receives_;  // (rank, position): send -> receive
  std::map<std::pair<size_t, size_t>, Meeting> meetings_;              // by the first rank and its position
};

EventGraph graph_of(const Schedule& schedule, Overlap overlap) {
  return event_graph(schedule, WorkIndex(schedule, count_microbatches(schedule)), overlap);
}

double first_start(const Recording& recording) {
  for (const Recording::Span& span : recording.spans)
    if (span.kind == Recording::Kind::Step) return span.start;
  return recording.program_end;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

template <typename Key>
std::map<Key, double> medians(const std::map<Key, std::vector<double>>& values) {
  std::map<Key, double> result;
  for (const auto& [key, of_steps] : values) result[key] = median(of_steps);
  return result;
}

struct Mean {
  double sum = 0;
  int count = 0;
};

template <typename Key>
void add_means(const std::map<Key, Mean>& means, std::map<Key, std::vector<double>>& values) {
  for (const auto& [key, mean] : means) values[key].push_back(mean.sum / mean.count);
}

}  // namespace

std::vector<Interval> measured_times(const Schedule& schedule, const EventGraph& graph, const RecordedStep& step) {
  const Measurement measurement(schedule, step, Overlap::Queues);
  std::vector<Interval> times;
  for (const Event& event : graph.events) times.push_back(measurement.time_of(event));
  return times;
}

double origin(const RecordedStep& step) {
  double first = std::numeric_limits<double>::infinity();
  for (const Recording& rank : step) first = std::min(first, rank.begin - rank.update_ms());
  return first;
}

Timeline measured_timeline(const Schedule& schedule, const RecordedStep& step, Overlap overlap, double from) {
  const EventGraph graph = graph_of(schedule, overlap);
  std::vector<Interval> times = measured_times(schedule, graph, step);
  for (Interval& time : times) time = {time.start - from, time.end - from};
  std::vector<double> starts;
  for (const Recording& rank : step) starts.push_back(first_start(rank) - from);
  Timeline timeline = make_timeline(schedule, graph, times, starts);
  for (size_t rank = 0; rank < step.size(); ++rank)
    for (const Recording::Span& span : step[rank].spans)
      if (span.kind == Recording::Kind::Wait && span.at != Recording::kUpdate && span.end > span.start)
        timeline.waits[rank].push_back({span.queue, span.start - from, span.end - from});
  return timeline;
}

MeasuredCosts::MeasuredCosts(const Schedule& schedule, std::span<const RecordedStep> steps, Overlap overlap, Clocks clocks) {
  const EventGraph graph = graph_of(schedule, overlap);
  std::map<Key, std::vector<double>> costs, issues;
  std::vector<std::vector<double>> leads(schedule.size());
  for (const RecordedStep& step : steps) {
    const Measurement measurement(schedule, step, overlap, clocks);
    std::map<Key, Mean> step_costs, step_issues;
    for (const Event& event : graph.events) {
      if (event.rank < 0) continue;
      const Interval time = measurement.time_of(event);
      const double spent = event.queue == Queue::Compute ? measurement.busy(event) : time.end - time.start;
      Mean& mean = (event.instant ? step_issues : step_costs)[key(event.rank, schedule[event.rank][event.at])];
      mean.sum += spent;
      ++mean.count;
    }
    add_means(step_costs, costs);
    add_means(step_issues, issues);
    for (size_t rank = 0; rank < step.size(); ++rank)
      leads[rank].push_back(step[rank].update_ms() + first_start(step[rank]) - step[rank].begin);
  }
  costs_ = medians(costs);
  issues_ = medians(issues);
  for (const auto& lead : leads) leads_.push_back(median(lead));
}

std::vector<Timeline> predicted_timelines(const Schedule& schedule, std::span<const MeasuredCosts> replicas, Overlap overlap) {
  std::vector<SimulateOptions> options;
  for (const MeasuredCosts& costs : replicas) {
    options.push_back({.cost = [&costs](int rank, const Instruction& i) { return costs.cost(rank, i); },
                       .issue = [&costs](int rank, const Instruction& i) { return costs.issue(rank, i); },
                       .overlap = overlap});
    for (size_t rank = 0; rank < schedule.size(); ++rank) options.back().starts.push_back(costs.lead(static_cast<int>(rank)));
  }
  return simulate_replicas(schedule, options);
}

}  // namespace trivet::pipeline
