// What the 1-bit optimizers and 0/1 Adam have in common once they send signs. 1-bit Adam and 1-bit LAMB: each rank adds its own
// gradient to the momentum, and the ranks average their momenta by signs with error feedback (zero::average_signs). The
// momentum is the optimizer's first state, the variance its second.
#pragma once

#include "engine/optimizer/update_rule.h"

namespace trivet {

// The scale with which a rank's own gradient counts as if all ranks had it, because what it becomes is averaged; times `share`.
Number own_gradient_scale(const Elements& elements, double share);

void add_own_gradient(const UpdateSide& side, const Elements& elements, const OptimizerConfig& config);

// Averages the ranks' momenta. Afterwards all ranks have the same momentum, and each what it has not sent yet.
void average_momentum(zero::ParameterGroup& group, const RankResources& resources);
// average = the average over the ranks of what they have to send (ParameterGroup::worker_error).
void average_by_signs(zero::ParameterGroup& group, TensorView average, const RankResources& resources);

// Adam without correction of the bias, whose variance stays. With beta1 0 the gradient becomes the momentum.
struct AdamOfFrozenVariance {
  TensorView gradient;  // float32, of the whole group
  Number lr;
  double beta1 = 0;
  Number gradient_scale = 1.0;
  bool decays = true;
};
void adam_of_frozen_variance(zero::ParameterGroup& group, const AdamOfFrozenVariance& with, const OptimizerConfig& config,
                             const RankResources& resources);

}  // namespace trivet
