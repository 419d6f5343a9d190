// Computes when everything in a schedule happens, by the same rules that validate() uses (pipeline/event_graph.h) and with
// costs that the caller gives in any unit of time.
#pragma once

#include <functional>
#include <vector>

#include "pipeline/event_graph.h"
#include "pipeline/passes/passes.h"
#include "pipeline/timeline.h"

namespace trivet::pipeline {

struct SimulateOptions {
  // A transfer takes as long as its SEND costs, a meeting as long as its instruction costs on the first of its ranks.
  std::function<double(int rank, const Instruction&)> cost;
  // The time that the program itself is busy with an instruction whose work runs elsewhere, for example with enqueueing
  // a transfer or a gather. Empty: no time.
  std::function<double(int rank, const Instruction&)> issue = {};
  std::vector<double> starts = {};                  // [rank] when its program begins; empty: 0
  BackwardSends sends = BackwardSends::AfterInput;  // if the schedule has no transfers, they are inserted in this way
  Overlap overlap = Overlap::Queues;
};

// Throws std::logic_error as validate() does.
Timeline simulate(const Schedule& schedule, const SimulateOptions& options);

// Simulates the same schedule on several data ranks, each with its own costs and starts; `sends` and `overlap` are taken from
// the first. The ranks run each gather and reduction that has a queue together, and they meet at SUM_LOSS.
std::vector<Timeline> simulate_replicas(const Schedule& schedule, std::span<const SimulateOptions> replicas);

// Costs of a microbatch on a rank. The rank's chunks (stages) share them evenly, and so do the blocks of a stage. B costs I +
// W, L costs F + I + W, R costs F; everything else is free.
struct ComputeCosts {
  double forward = 1, backward_input = 1, backward_weight = 1;
};
std::function<double(int, const Instruction&)> even_costs(const Schedule& schedule, const ComputeCosts& costs);

}  // namespace trivet::pipeline
