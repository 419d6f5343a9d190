// The StepModel (autotune/step_model.h) as a StepPredictor: nothing is measured but the few rates that describe this host.
#pragma once

#include <memory>
#include <vector>

#include "autotune/cluster.h"
#include "autotune/doctor.h"
#include "autotune/step_predictor.h"
#include "model/model.h"

namespace trivet::autotune {

// One host of so many ranks, all busy at once, from what `examine` found with as many threads as they have together. Throws
// ConfigError where it could not measure.
Cluster host_cluster(const std::vector<Finding>& findings, int ranks);

// `config` says what is the same in all configs that are asked for: model, data types, optimizer. Owns what it needs.
std::unique_ptr<StepPredictor> make_described_predictor(const Config& config, const model::Description& model, Cluster cluster);

}  // namespace trivet::autotune
