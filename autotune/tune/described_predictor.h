// The StepModel (autotune/step_model.h) as a StepPredictor. Nothing is measured except the few rates that describe this host.
#pragma once

#include <memory>
#include <vector>

#include "autotune/cluster.h"
#include "autotune/doctor.h"
#include "autotune/step_predictor.h"
#include "model/model.h"

namespace trivet::autotune {

// Describes one host with this many ranks, all busy at once, from what `examine` found with as many threads as the ranks have
// together. Throws ConfigError if `examine` could not measure.
Cluster host_cluster(const std::vector<Finding>& findings, int ranks);

// `config` gives what all predicted configs have in common: model, data types, optimizer. The predictor owns what it needs.
std::unique_ptr<StepPredictor> make_described_predictor(const Config& config, const model::Description& model, Cluster cluster);

}  // namespace trivet::autotune
