// The times of everything that happens in a step, simulated (pipeline/simulate.h) or measured (pipeline/measure.h).
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
  int peer = -1;  // for a transfer, which is listed at its sender: the receiving rank
  double start = 0, end = 0;
};

// A time in which a rank did nothing but wait for work on `queue`.
struct TimedWait {
  Queue queue = Queue::Send;
  double start = 0, end = 0;
};

struct Timeline {
  // [rank] sorted by start: all computation, and other work if it takes time.
  std::vector<std::vector<TimedInstruction>> ranks;
  std::vector<std::vector<TimedWait>> waits;  // [rank] sorted by start
  double makespan = 0;
  double bubble_fraction = 0;          // 1 - computing time / time from the start of each rank's program to the makespan
  std::vector<int> peak_microbatches;  // [rank] most (stage, microbatch) pairs between the start of F and the end of W
};

// Takes `times` [event of the schedule's graph] and `starts` [rank], when each program began. Leaves the waits empty.
Timeline make_timeline(const Schedule& schedule, const EventGraph& graph, std::span<const Interval> times,
                       std::span<const double> starts);

}  // namespace trivet::pipeline
