// Relates what the ranks of one pipeline recorded to the schedule's event graph: when each event happened, what each
// instruction costs, and what simulate() predicts for the step with these costs.
//
// A step is counted from the previous SUM_LOSS, where all ranks meet: it begins with the optimizer step that follows that
// SUM_LOSS and continues with the program. In steady state its makespan is the time of a step.
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

// [event of `graph`] A computation begins when everything that it waits for is done. A transfer or meeting begins when all its
// ranks have arrived and ends when the first of them sees that it is done. An event that takes no time in the graph becomes a
// point.
std::vector<Interval> measured_times(const Schedule& schedule, const EventGraph& graph, const RecordedStep& step);

// Returns the time from which the step is counted.
double origin(const RecordedStep& step);

// `from`: the recorded time that becomes 0.
Timeline measured_timeline(const Schedule& schedule, const RecordedStep& step, Overlap overlap, double from);

// Shared: the ranks ran together; a transfer or meeting begins when all its ranks have arrived. Apart: each rank ran by itself
// and met no other rank; a transfer takes as long as it took its sender.
enum class Clocks : uint8_t { Shared, Apart };

// Holds the costs for each rank, kind of instruction, stage and block: the mean over the microbatches of a step, and of these
// means the median over the steps.
class MeasuredCosts {
 public:
  MeasuredCosts(const Schedule& schedule, std::span<const RecordedStep> steps, Overlap overlap, Clocks clocks = Clocks::Shared);

  // `cost` and `issue` are those of SimulateOptions. They throw std::out_of_range for an instruction that never ran.
  double cost(int rank, const Instruction& i) const { return costs_.at(key(rank, i)); }
  double issue(int rank, const Instruction& i) const { return issues_.at(key(rank, i)); }
  double lead(int rank) const { return leads_.at(rank); }  // the optimizer step, up to the first instruction

 private:
  using Key = std::tuple<int, Op, int, int>;  // rank, kind, stage, block
  static Key key(int rank, const Instruction& i) { return {rank, i.op, i.stage, i.block}; }

  std::map<Key, double> costs_, issues_;
  std::vector<double> leads_;  // [rank]
};

// Simulates the schedule on several data ranks, each with its own costs.
std::vector<Timeline> predicted_timelines(const Schedule& schedule, std::span<const MeasuredCosts> replicas, Overlap overlap);

}  // namespace trivet::pipeline
