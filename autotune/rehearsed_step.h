// How long a step takes, from the real program: every rank's worker runs the plan's program in modelled time
// (modelled_time.h), and what its instructions cost goes through the schedule's own simulation (pipeline/measure.h), where
// ranks wait for each other.
#pragma once

#include <vector>

#include "autotune/cost_model.h"
#include "engine/plan.h"
#include "pipeline/timeline.h"

namespace trivet::autotune {

// Mean over the ranks; the parts add up to the step. Communication: waiting for it or, where it shares the kernels' cores,
// doing it.
struct RehearsedSeconds {
  double compute = 0, recompute = 0;  // of instructions, without what follows; what layers make again themselves is in compute
  double tensor = 0;                  // of the tensor axis
  double pipeline = 0;                // waiting for neighbouring stages, and for their last microbatches
  double data = 0;                    // gathers and reductions
  double all = 0;                     // for sums of loss and norm, and for ties
  double optimizer = 0;               // of the update, without waiting
  double total() const { return compute + recompute + tensor + pipeline + data + all + optimizer; }
};

struct RehearsedStep {
  double seconds = 0;
  RehearsedSeconds parts;
  std::vector<pipeline::Timeline> timelines;  // [tensor rank] of its pipeline; ranks of a data group do alike; milliseconds
};

// Throws ConfigError for what has no modelled time: offload to files or to the host.
RehearsedStep rehearse_step(const Plan& plan, const model::Model& model, const CostModel& costs);

}  // namespace trivet::autotune
