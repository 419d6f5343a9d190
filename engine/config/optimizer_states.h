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
// Which of the states a data rank has of its own: they differ from rank to rank, and so may the weights that layers see. Then
// the master weights, which are the same on all ranks, are kept apart from those.
std::vector<int> own_optimizer_states(OptimizerType type);

// Whether an optimizer averages something by signs, in some of its updates.
bool may_send_signs(OptimizerType type);
// What data ranks send each other in an update.
enum class UpdateKind {
  SumsGradients,    // gradients, before the update
  SendsSigns,       // signs of what each rank makes of its own gradient
  Local,            // nothing but norms and losses: each rank goes on by itself
  EndsLocalUpdates  // signs of what the local updates, of which this is the last, have added up to
};
// `update` counts from 1.
UpdateKind kind_of_update(const OptimizerConfig& config, int64_t update);
// Whether gradients are not summed over data ranks.
inline bool has_own_gradients(const OptimizerConfig& config, int64_t update) {
  return kind_of_update(config, update) != UpdateKind::SumsGradients;
}
// One update of each kind that a long run has. Plans count the bytes of the last: of the kind that the run has in the end,
// where those between synchronisations do not count.
std::vector<int64_t> updates_of_all_kinds(const OptimizerConfig& config);
// Whether a step visits weights and states only once.
bool visits_states_once(OptimizerType type);
// Whether the scheduler OneCycle, with cycle_momentum, changes the optimizer's betas.
bool betas_cycle(OptimizerType type);

}  // namespace trivet
