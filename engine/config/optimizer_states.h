// Facts about an optimizer that are known without running it (engine/optimizer has what it computes).
#pragma once

#include <string>
#include <vector>

#include "engine/config/optimizer_config.h"

namespace trivet {

// float32 tensors that an optimizer keeps per parameter, in addition to the master weights.
int optimizer_states(OptimizerType type, const OptimizerConfig& config);
// Their names in checkpoints: "moment1", "moment2" ...
std::vector<std::string> optimizer_state_names(OptimizerType type, const OptimizerConfig& config);
// Whether a step visits weights and states only once.
bool visits_states_once(OptimizerType type);
// Whether the scheduler OneCycle, with cycle_momentum, changes the optimizer's betas.
bool betas_cycle(OptimizerType type);

}  // namespace trivet
