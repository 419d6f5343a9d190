// When everything in a schedule happens, by the rules that validate() proves (pipeline/event_graph.h) and costs that the caller
// states, in any unit of time.
#pragma once

#include <functional>
#include <vector>

#include "pipeline/event_graph.h"
#include "pipeline/passes/passes.h"
#include "pipeline/timeline.h"

namespace trivet::pipeline {

struct SimulateOptions {
  // A transfer takes what its SEND costs, a meeting what the dearest of its members does.
  std::function<double(int rank, const Instruction&)> cost;
  // What the program itself is busy with where the work runs elsewhere: enqueueing a transfer, a gather ... None: nothing.
  std::function<double(int rank, const Instruction&)> issue = {};
  std::vector<double> starts = {};                  // [rank] when its program begins; empty: 0
  BackwardSends sends = BackwardSends::AfterInput;  // for a schedule without transfers, which are inserted
  Overlap overlap = Overlap::Queues;
};

// Throws std::logic_error as validate() does.
Timeline simulate(const Schedule& schedule, const SimulateOptions& options);

// The same schedule on several data ranks, each with costs and starts of its own, `sends` and `overlap` as the first has them.
// They do each gather and reduction that has a queue together, and meet at SUM_LOSS.
std::vector<Timeline> simulate_replicas(const Schedule& schedule, std::span<const SimulateOptions> replicas);

// Costs of a microbatch on a rank, which its chunks (stages) share evenly; of one block, its stage's blocks do. B is I and W, L
// is F, I and W, R is F; all else is free.
struct ComputeCosts {
  double forward = 1, backward_input = 1, backward_weight = 1;
};
std::function<double(int, const Instruction&)> even_costs(const Schedule& schedule, const ComputeCosts& costs);

}  // namespace trivet::pipeline
