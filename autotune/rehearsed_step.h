// How long a step takes, from the real program: every rank's worker runs the plan's program in modelled time
// (modelled_time.h), and what its instructions cost goes through the schedule's own simulation (pipeline/measure.h), where
// ranks wait for each other.
#pragma once

#include <vector>

#include "autotune/cost_model.h"
#include "autotune/step_model.h"
#include "engine/plan.h"
#include "pipeline/timeline.h"

namespace trivet::autotune {

struct RehearsedStep {
  double seconds = 0;
  // Means over the ranks, which add up to the step. Communication is waiting for it or, where it shares the kernels' cores,
  // doing it. tensor: of the tensor axis. data: gathers, reductions, ties and the sums of all ranks. bubble: waiting for
  // neighbouring stages. What layers make again themselves (selective recomputation) is in compute.
  StepSeconds parts;
  std::vector<pipeline::Timeline> timelines;  // [tensor rank] of its pipeline; ranks of a data group do alike; milliseconds
};

// Throws ConfigError for what has no modelled time: offload to files or to the host.
RehearsedStep rehearse_step(const Plan& plan, const model::Model& model, const CostModel& costs);

}  // namespace trivet::autotune
