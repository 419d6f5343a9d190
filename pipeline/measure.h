// What the ranks of one pipeline recorded, in the terms of the schedule's event graph: when each event was, what each
// instruction costs, and with these costs what simulate() makes of the step.
//
// A step is counted from the SUM_LOSS before it, where all ranks meet: first the optimizer step of what was before, then the
// program. In a steady state its makespan is the time of a step.
#pragma once

#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "pipeline/recording.h"
#include "pipeline/simulate.h"
#include "pipeline/timeline.h"

namespace trivet::pipeline {

using RecordedStep = std::vector<Recording>;  // [pipeline rank]

// [event of `graph`] A computation begins when it has all that it waits for, a transfer or meeting when all its ranks are
// there; it ends when the first of them knows. What takes no time in the graph is a point.
std::vector<Interval> measured_times(const Schedule& schedule, const EventGraph& graph, const RecordedStep& step);

// Where the step is counted from.
double origin(const RecordedStep& step);

// `from`: what is time 0.
Timeline measured_timeline(const Schedule& schedule, const RecordedStep& step, Overlap overlap, double from);

// Shared: ranks that ran together; a transfer or meeting begins when all its ranks are there. Apart: ranks that ran each for
// itself and met nobody; a transfer takes what it took its sender.
enum class Clocks : uint8_t { Shared, Apart };

// For each rank, kind of instruction, stage and block the mean over the microbatches, of that the median over the steps.
class MeasuredCosts {
 public:
  MeasuredCosts(const Schedule& schedule, std::span<const RecordedStep> steps, Overlap overlap, Clocks clocks = Clocks::Shared);

  // As SimulateOptions has them. They throw std::out_of_range for an instruction that never ran.
  double cost(int rank, const Instruction& i) const { return costs_.at(key(rank, i)); }
  double issue(int rank, const Instruction& i) const { return issues_.at(key(rank, i)); }
  double lead(int rank) const { return leads_.at(static_cast<size_t>(rank)); }  // the optimizer step, to the first instruction

 private:
  using Key = std::tuple<int, Op, int, int>;  // rank, kind, stage, block
  static Key key(int rank, const Instruction& i) { return {rank, i.op, i.stage, i.block}; }

  std::map<Key, double> costs_, issues_;
  std::vector<double> leads_;  // [rank]
};

// The schedule with these costs on each data rank.
std::vector<Timeline> predicted_timelines(const Schedule& schedule, std::span<const MeasuredCosts> replicas, Overlap overlap);

}  // namespace trivet::pipeline
