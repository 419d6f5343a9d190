// When everything in a schedule happens, by the rules that validate() proves (pipeline/event_graph.h) and costs that the caller
// states, in any unit of time.
#pragma once

#include <functional>
#include <vector>

#include "pipeline/event_graph.h"
#include "pipeline/passes/passes.h"

namespace trivet::pipeline {

struct TimedInstruction {
  Instruction instruction;
  Queue queue = Queue::Compute;
  int peer = -1;  // of a transfer, which stands at its sender: the rank that receives
  double start = 0, end = 0;
};

struct Timeline {
  std::vector<std::vector<TimedInstruction>> ranks;  // [rank] by start; nothing of what takes no time but computation
  double makespan = 0;
  double bubble_fraction = 0;          // 1 - time of computation / (ranks x makespan)
  std::vector<int> peak_microbatches;  // [rank] microbatches of one stage between the start of F and the end of W
};

struct SimulateOptions {
  // A transfer takes what its SEND costs, a meeting what the dearest of its members does.
  std::function<double(int rank, const Instruction&)> cost;
  BackwardSends sends = BackwardSends::AfterInput;  // for a schedule without transfers, which are inserted
  Overlap overlap = Overlap::Queues;
};

// Throws std::logic_error as validate() does.
Timeline simulate(const Schedule& schedule, const SimulateOptions& options);

// Costs of a microbatch on a rank, which its chunks (stages) share evenly; of one block, its stage's blocks do. B is I and W, L
// is F, I and W, R is F; all else is free.
struct ComputeCosts {
  double forward = 1, backward_input = 1, backward_weight = 1;
};
std::function<double(int, const Instruction&)> even_costs(const Schedule& schedule, const ComputeCosts& costs);

}  // namespace trivet::pipeline
