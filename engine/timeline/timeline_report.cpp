#include "engine/timeline/timeline_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace trivet::timeline {
namespace {

using pipeline::Instruction;
using pipeline::MeasuredCosts;
using pipeline::Op;
using pipeline::Overlap;
using pipeline::Queue;
using pipeline::RecordedStep;
using pipeline::Recording;
using pipeline::Schedule;
using pipeline::TimedWait;
using pipeline::Timeline;

using Recordings = std::vector<std::vector<Recording>>;  // [world rank][step]

bool gathers_or_reduces(const Recording::Span& span) {
  return span.kind == Recording::Kind::Work && span.at != Recording::kUpdate &&
         (span.queue == Queue::Gather || span.queue == Queue::Reduce);
}

// The instructions that gather from the second copy of weights: [world rank][instruction].
std::vector<std::vector<bool>> gathers_from_second_copy(const Plan& plan) {
  std::vector<std::vector<bool>> from_second_copy(plan.mesh.size());
  for (int rank = 0; rank < plan.mesh.size(); ++rank) {
    std::set<int> gathered;  // blocks; the first gather of a step leaves the second copy
    for (const Instruction& i : plan.rank(rank).programs.train)
      from_second_copy[rank].push_back(i.op == Op::Unshard && !gathered.insert(i.block).second &&
                                       plan.sharding().secondary > 1);
  }
  return from_second_copy;
}

// An operation of several ranks begins when the last of them arrives: the time before that is waiting, not part of its cost.
// `selected`: which work of a rank is operations of these groups.
template <typename Selected>
void align_starts(const std::vector<std::vector<int>>& groups, size_t step, Recordings& recordings, const Selected& selected) {
  using Key = std::pair<int, Queue>;  // index of the instruction
  for (const std::vector<int>& group : groups) {
    std::map<Key, double> last_start;
    for (const int rank : group) {
      std::set<Key> begun;  // an instruction may have several operations
      for (const Recording::Span& span : recordings[rank][step].spans)
        if (selected(rank, span) && begun.insert({span.at, span.queue}).second)
          last_start[{span.at, span.queue}] = std::max(last_start[{span.at, span.queue}], span.start);
    }
    for (const int rank : group)
      for (Recording::Span& span : recordings[rank][step].spans)
        if (selected(rank, span)) span.start = std::min(std::max(span.start, last_start[{span.at, span.queue}]), span.end);
  }
}

void align_collectives(const Plan& plan, Recordings& recordings) {
  const auto equal = plan.mesh.groups(equal_over(Sharing::Dense));
  const auto second_copy = gathers_from_second_copy(plan);
  const auto in_second_copy = [&](int rank, const Recording::Span& span) {
    return gathers_or_reduces(span) && span.queue == Queue::Gather && second_copy[rank][span.at];
  };
  const auto in_shards = [&](int rank, const Recording::Span& span) {
    return gathers_or_reduces(span) && !in_second_copy(rank, span);
  };
  for (size_t step = 0; step < recordings.front().size(); ++step) {
    align_starts(runs_of(equal, plan.shards(Sharing::Dense)), step, recordings, in_shards);
    align_starts(runs_of(equal, plan.sharding().secondary), step, recordings, in_second_copy);
  }
}

Overlap overlap_of(const Plan& plan) { return plan.config.zero.overlap_comm ? Overlap::Queues : Overlap::None; }

// The ranks that differ only along the pipeline axis, their programs and what they recorded.
struct PipelineRun {
  int tensor_rank = 0;
  std::vector<int> ranks;  // [pipeline rank] in the world
  Schedule schedule;
  std::vector<RecordedStep> steps;
};

std::vector<PipelineRun> pipeline_runs(const Plan& plan, const Recordings& recordings) {
  std::vector<PipelineRun> runs;
  for (const std::vector<int>& ranks : plan.mesh.groups(Axis::Pipeline)) {
    PipelineRun& run = runs.emplace_back(PipelineRun{
        plan.mesh.coordinate_of(ranks.front(), Axis::Tensor), ranks, {}, std::vector<RecordedStep>(recordings.front().size())});
    for (const int rank : ranks) {
      run.schedule.push_back(plan.rank(rank).programs.train);
      for (size_t step = 0; step < run.steps.size(); ++step) run.steps[step].push_back(recordings[rank][step]);
    }
  }
  return runs;
}

double origin_of(const std::vector<PipelineRun>& runs, size_t step) {
  double first = origin(runs.front().steps[step]);
  for (const PipelineRun& run : runs) first = std::min(first, origin(run.steps[step]));
  return first;
}

double length_of(const std::vector<PipelineRun>& runs, size_t step) {
  double last = 0;
  for (const PipelineRun& run : runs)
    for (const Recording& recording : run.steps[step]) last = std::max(last, recording.program_end);
  return last - origin_of(runs, step);
}

size_t median_step(const std::vector<PipelineRun>& runs) {
  std::vector<size_t> steps;
  for (size_t step = 0; step < runs.front().steps.size(); ++step) steps.push_back(step);
  std::stable_sort(steps.begin(), steps.end(), [&](size_t a, size_t b) { return length_of(runs, a) < length_of(runs, b); });
  return steps[(steps.size() - 1) / 2];
}

// Joins the timelines of the runs into one.
Timeline joined(const std::vector<PipelineRun>& runs, const std::vector<Timeline>& parts) {
  Timeline all;
  size_t world = 0;
  for (const PipelineRun& run : runs) world += run.ranks.size();
  all.ranks.resize(world);
  all.waits.resize(world);
  all.peak_microbatches.resize(world);
  for (size_t n = 0; n < runs.size(); ++n) {
    all.makespan = std::max(all.makespan, parts[n].makespan);
    all.bubble_fraction += parts[n].bubble_fraction / static_cast<double>(runs.size());
    for (size_t place = 0; place < runs[n].ranks.size(); ++place) {
      const size_t rank = runs[n].ranks[place];
      all.ranks[rank] = parts[n].ranks[place];
      all.waits[rank] = parts[n].waits[place];
      all.peak_microbatches[rank] = parts[n].peak_microbatches[place];
    }
  }
  return all;
}

Timeline measured_step(const std::vector<PipelineRun>& runs, size_t step, Overlap overlap) {
  std::vector<Timeline> parts;
  for (const PipelineRun& run : runs)
    parts.push_back(measured_timeline(run.schedule, run.steps[step], overlap, origin_of(runs, step)));
  return joined(runs, parts);
}

// Lines with the same tensor rank have the same programs, because they differ only along the data axis.
Timeline simulated_step(const std::vector<PipelineRun>& runs, size_t step, Overlap overlap) {
  std::map<int, std::vector<size_t>> replicas;
  for (size_t n = 0; n < runs.size(); ++n) replicas[runs[n].tensor_rank].push_back(n);
  std::vector<Timeline> parts(runs.size());
  for (const auto& [tensor_rank, members] : replicas) {
    std::vector<MeasuredCosts> costs;
    for (const size_t n : members) costs.emplace_back(runs[n].schedule, std::span(&runs[n].steps[step], 1), overlap);
    const std::vector<Timeline> timelines = predicted_timelines(runs[members.front()].schedule, costs, overlap);
    for (size_t place = 0; place < members.size(); ++place) parts[members[place]] = timelines[place];
  }
  return joined(runs, parts);
}

double median_prediction(const std::vector<PipelineRun>& runs, Overlap overlap) {
  std::vector<double> makespans;
  for (size_t step = 0; step < runs.front().steps.size(); ++step)
    makespans.push_back(simulated_step(runs, step, overlap).makespan);
  std::sort(makespans.begin(), makespans.end());
  return makespans[(makespans.size() - 1) / 2];
}

void add_wait(Exposed& exposed, Queue queue, double ms) {
  if (const auto axis = axis_of(queue)) exposed.axes[static_cast<size_t>(*axis)] += ms;
  if (queue == Queue::Meet) exposed.all += ms;
}

Exposed exposed_of(const Timeline& timeline, const Recordings& recordings, size_t step) {
  Exposed exposed;
  const double share = 1.0 / static_cast<double>(timeline.waits.size());
  for (const auto& waits : timeline.waits)
    for (const TimedWait& wait : waits) add_wait(exposed, wait.queue, (wait.end - wait.start) * share);
  for (const auto& steps : recordings)  // the optimizer step is not predicted: both sides have its measured time
    for (const Recording::Span& span : steps[step].spans)
      if (span.kind == Recording::Kind::Wait && span.at == Recording::kUpdate)
        add_wait(exposed, span.queue, (span.end - span.start) * share);
  return exposed;
}

std::vector<BlockCosts> block_costs(const Plan& plan, const std::vector<PipelineRun>& runs, Overlap overlap) {
  std::vector<BlockCosts> blocks;
  for (const auto& block : plan.ranks.front().layout.blocks) blocks.push_back({block.name, {}});
  for (const PipelineRun& run : runs) {
    const MeasuredCosts costs(run.schedule, run.steps, overlap);
    for (size_t rank = 0; rank < run.schedule.size(); ++rank) {
      std::set<std::pair<Op, int>> seen;
      for (const Instruction& i : run.schedule[rank])
        if (computes(i.op) && seen.insert({i.op, i.block}).second)
          blocks[i.block].ms[i.op] += costs.cost(static_cast<int>(rank), i) / static_cast<double>(runs.size());
    }
  }
  return blocks;
}

double mean_update(const Recordings& recordings, size_t step) {
  double sum = 0;
  for (const auto& steps : recordings) sum += steps[step].update_ms();
  return sum / static_cast<double>(recordings.size());
}

}  // namespace

TimelineReport make_timeline_report(const Plan& plan, Recordings recordings) {
  align_collectives(plan, recordings);
  const Overlap overlap = overlap_of(plan);
  const std::vector<PipelineRun> runs = pipeline_runs(plan, recordings);
  const size_t step = median_step(runs);
  TimelineReport report;
  report.measured.timeline = measured_step(runs, step, overlap);
  report.simulated.timeline = simulated_step(runs, step, overlap);
  report.measured.exposed = exposed_of(report.measured.timeline, recordings, step);
  report.simulated.exposed = exposed_of(report.simulated.timeline, recordings, step);
  report.predicted_ms = median_prediction(runs, overlap);
  report.update_ms = mean_update(recordings, step);
  report.blocks = block_costs(plan, runs, overlap);
  return report;
}

std::string summary(const TimelineReport& report) {
  const auto &m = report.measured, &s = report.simulated;
  const auto pair = [](std::string_view name, double measured, double predicted) {
    return measured < 0.005 && predicted < 0.005 ? "" : fmt::format(", {} {:.2f} and {:.2f}", name, measured, predicted);
  };
  std::string waits;
  for (const auto& [name, axis] : EnumNames<Axis>::table)
    waits += pair(name, m.exposed.axes[static_cast<size_t>(axis)], s.exposed.axes[static_cast<size_t>(axis)]);
  waits += pair("loss, norm and ties", m.exposed.all, s.exposed.all);
  return fmt::format(
      "{:.2f} ms measured and {:.2f} predicted, bubble {:.1f} and {:.1f} %; waits per rank:{} ms; optimizer {:.2f} ms",
      m.timeline.makespan, s.timeline.makespan, 100 * m.timeline.bubble_fraction, 100 * s.timeline.bubble_fraction,
      waits.empty() ? " 0" : waits.substr(1), report.update_ms);
}

}  // namespace trivet::timeline
