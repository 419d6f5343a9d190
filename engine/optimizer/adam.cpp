#include "engine/optimizer/adam.h"

namespace trivet {

void PendingAdam::add(const UpdateSide& side, const Elements& elements, const StepScalars& scalars, Number lr,
                      const OptimizerConfig& config) {
  updates_.push_back({.master = elements.master(),
                      .moment1 = elements.state(0),
                      .moment2 = elements.state(1),
                      .copy_out = elements.copy_out(),
                      .gradient = elements.gradient,
                      .verdict = side.verdict,
                      .lr = lr,
                      .beta1 = scalars.beta1,
                      .beta2 = scalars.beta2,
                      .epsilon = config.epsilon,
                      .weight_decay = elements.weight_decay,
                      .gradient_scale = elements.gradient_scale,
                      .correction1 = scalars.correction1,
                      .correction2 = scalars.correction2,
                      .decoupled_decay = config.type != OptimizerType::Adam || config.adam_w_mode});
}

void PendingAdam::run(const UpdateSide& side) {
  if (!updates_.empty()) side.kernels.adam(updates_);
  updates_.clear();
}

void AdamRule::update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) {
  pending_.add(side, elements, scalars, scalars.lr, config_);
}

}  // namespace trivet
