// How long a step of a plan takes on a cluster, and whether it fits there: time by the StepModel, memory by the plan itself.
#pragma once

#include <string>
#include <vector>

#include "autotune/step_model.h"
#include "engine/plan.h"

namespace trivet::autotune {

struct PlanPrediction {
  Layout layout;
  StepPrediction step;           // its bytes are the plan's, of the heaviest rank
  std::vector<StepBytes> ranks;  // [pipeline rank] the plan's
  double flops_per_token = 0;    // of the model
};

// Throws ConfigError for more devices than the cluster has, for offload where it does not describe the host, and for what no
// Layout describes (layout_of).
PlanPrediction predict_plan(const Plan& plan, const model::Model& model, const Cluster& cluster);

// [pipeline rank] What the plan says of its heaviest tensor rank.
std::vector<StepBytes> bytes_of_ranks(const Plan& plan);
// Of the rank that holds most, and of the host of the one that has most there.
StepBytes heaviest_of(const std::vector<StepBytes>& ranks);
// "fits", "12.3 GiB over"
std::string verdict(const StepBytes& bytes, const Cluster& cluster);

// The plan's own text or JSON, and the prediction: parts of the step, tokens/s, utilisation, price, memory beside the device's.
std::string to_text(const Plan& plan, const PlanPrediction& prediction, const Cluster& cluster);
std::string to_json(const Plan& plan, const PlanPrediction& prediction, const Cluster& cluster);

}  // namespace trivet::autotune
