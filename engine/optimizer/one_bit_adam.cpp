#include "engine/optimizer/one_bit_adam.h"

#include "engine/config/optimizer_states.h"
#include "engine/optimizer/signed_momentum.h"
#include "kernels/kernels.h"

namespace trivet {

bool OneBitAdamRule::sends_signs(const StepScalars& scalars) const {
  return has_own_gradients(context_.config, static_cast<int64_t>(scalars.update.value()));
}

void OneBitAdamRule::update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) {
  if (!sends_signs(scalars)) {
    StepScalars uncorrected = scalars;
    uncorrected.correction1 = uncorrected.correction2 = 1.0;
    return pending_.add(side, elements, uncorrected, scalars.lr, context_.config);
  }
  add_own_gradient(side, elements, context_.config);
}

void OneBitAdamRule::finish(const StepScalars& scalars) {
  if (!sends_signs(scalars)) return;
  for (const OwnedGroup& group : context_.owned.groups()) {
    average_momentum(*group.group, context_.resources);
    adam_of_frozen_variance(*group.group, {.gradient = group.group->owned().states[0], .lr = scalars.lr}, context_.config,
                            context_.resources);
  }
}

}  // namespace trivet
