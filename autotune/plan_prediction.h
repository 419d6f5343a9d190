// Predicts how long a step of a plan takes on a cluster, and whether it fits there. The time comes from the StepModel, the
// memory from the plan itself.
#pragma once

#include <string>
#include <vector>

#include "autotune/step_model.h"
#include "engine/plan.h"

namespace trivet::autotune {

struct PlanPrediction {
  Layout layout;
  StepPrediction step;           // its bytes are those of the plan's heaviest rank
  std::vector<StepBytes> ranks;  // [pipeline rank] from the plan
  double flops_per_token = 0;    // the model's
};

// Throws ConfigError for more devices than the cluster has, for offload if the cluster does not describe the host, and for what
// no Layout describes (layout_of).
PlanPrediction predict_plan(const Plan& plan, const model::Model& model, const Cluster& cluster);

// [pipeline rank] What the plan says about its heaviest tensor rank.
std::vector<StepBytes> bytes_of_ranks(const Plan& plan);
// The bytes of the rank that holds most on its device, and the host bytes of the rank that has most there.
StepBytes heaviest_of(const std::vector<StepBytes>& ranks);
// How much of the communication overlaps the computation, in words; nothing if ranks only pass a pipeline's messages.
std::vector<std::string> network_lines(const PlanPrediction& prediction);
// "fits", "12.3 GiB over"
std::string fit_text(const StepBytes& bytes, const Cluster& cluster);

// The plan's own text or JSON, together with the prediction: parts of the step, tokens/s, utilization, price, memory compared
// with the device's.
// `tokens`: a number of tokens, whose time and cost are also stated; 0: none is.
std::string to_text(const Plan& plan, const PlanPrediction& prediction, const Cluster& cluster, double tokens = 0);
std::string to_json(const Plan& plan, const PlanPrediction& prediction, const Cluster& cluster, double tokens = 0);

}  // namespace trivet::autotune
