// When everything in a step happens: simulated (pipeline/simulate.h) or measured (pipeline/measure.h), in one form.
#pragma once

#include <span>
#include <vector>

#include "pipeline/event_graph.h"

namespace trivet::pipeline {

struct Interval {
  double start = 0, end = 0;
};

struct TimedInstruction {
  Instruction instruction;
  Queue queue = Queue::Compute;
  int peer = -1;  // of a transfer, which stands at its sender: the rank that receives
  double start = 0, end = 0;
};

// A rank had nothing to do but wait for something on `queue`.
struct TimedWait {
  Queue queue = Queue::Send;
  double start = 0, end = 0;
};

struct Timeline {
  std::vector<std::vector<TimedInstruction>> ranks;  // [rank] by start; nothing of what takes no time but computation
  std::vector<std::vector<TimedWait>> waits;         // [rank] by start
  double makespan = 0;
  double bubble_fraction = 0;          // 1 - time of computation / time from the start of each rank's program to the makespan
  std::vector<int> peak_microbatches;  // [rank] microbatches of one stage between the start of F and the end of W
};

// From when each event of the schedule's graph happened and, [rank], when each program began. Without waits.
Timeline make_timeline(const Schedule& schedule, const EventGraph& graph, std::span<const Interval> times,
                       std::span<const double> starts);

}  // namespace trivet::pipeline
