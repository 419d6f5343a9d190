// What is known of an optimizer without running it (engine/optimizer has what it computes).
#pragma once

#include <string>
#include <vector>

#include "engine/config/optimizer_config.h"

namespace trivet {

// float32 tensors that an optimizer keeps per parameter, in addition to the master weights.
int optimizer_states(OptimizerType type, const OptimizerConfig& config);
// Their names in checkpoints: "moment1", "moment2" ...
std::vector<std::string> optimizer_state_names(OptimizerType type, const OptimizerConfig& config);
// The names of the scalars that it keeps for each parameter tensor (zero::ParameterGroup::parameter_scalars).
std::vector<std::string> optimizer_scalar_names(OptimizerType type);
// Whether an optimizer averages momenta by signs after its warm-up; and whether it does so in an update, counted from 1. Then
// gradients are not summed over data ranks.
bool may_send_signs(OptimizerType type);
bool sends_signs(const OptimizerConfig& config, int64_t update);
// Whether a step visits weights and states only once.
bool visits_states_once(OptimizerType type);
// Whether the scheduler OneCycle, with cycle_momentum, changes the optimizer's betas.
bool betas_cycle(OptimizerType type);

}  // namespace trivet
