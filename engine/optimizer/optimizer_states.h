// What an optimizer keeps from step to step.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"

namespace trivet {

// float32 tensors that an optimizer keeps per parameter, besides the master weights.
int optimizer_states(OptimizerType type, const OptimizerConfig& config);
// Their names in checkpoints: "moment1", "moment2" ...
std::vector<std::string> optimizer_state_names(OptimizerType type, const OptimizerConfig& config);

}  // namespace trivet
