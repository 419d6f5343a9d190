// What 1-bit Adam and 1-bit LAMB have in common once they send signs: each rank adds its own gradient to the momentum, and the
// ranks average their momenta by signs with error feedback (zero::average_signs). The momentum is the optimizer's first state,
// the variance its second.
#pragma once

#include "engine/optimizer/update_rule.h"

namespace trivet {

// The momenta are averaged, so a rank's gradient counts as if all ranks had it.
void add_own_gradient(const UpdateSide& side, const Elements& elements, const OptimizerConfig& config);

// Afterwards all ranks have the same momentum, and each what it has not sent yet.
void average_momentum(zero::ParameterGroup& group, const RankResources& resources);

}  // namespace trivet
