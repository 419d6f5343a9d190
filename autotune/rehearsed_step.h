// Predicts how long a step takes from the real program: every rank's worker runs the plan's program in modelled time
// (modelled_time.h), and the costs of its instructions go through the simulation of the schedule (pipeline/measure.h), in which
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
  // Means over the ranks, which add up to the step. Communication counts as the time spent waiting for it or, if it shares the
  // kernels' cores, the time spent on it. tensor, context: on those axes. data: gathers, reductions, ties and the sums of all
  // ranks. bubble: waiting for neighbouring stages. compute has selective recomputation, too.
  StepSeconds parts;
  // [tensor rank] of its pipeline, in milliseconds; all ranks of a data group do the same.
  std::vector<pipeline::Timeline> timelines;
};

// Throws ConfigError for what has no modelled time: offload to files, or from a GPU to the host.
RehearsedStep rehearse_step(const Plan& plan, const model::Model& model, const CostModel& costs);

}  // namespace trivet::autotune
