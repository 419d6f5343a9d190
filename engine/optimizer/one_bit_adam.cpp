#include "engine/optimizer/one_bit_adam.h"

#include "engine/config/optimizer_states.h"
#include "engine/optimizer/signed_momentum.h"
#include "kernels/kernels.h"

namespace trivet {

bool OneBitAdamRule::sends_signs(const StepScalars& scalars) const {
  return trivet::sends_signs(context_.config, static_cast<int64_t>(scalars.update.value()));
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
    update_weights(*group.group, scalars);
  }
}

// Adam whose moments are those at hand: with beta1 0 its gradient becomes the momentum, and with beta2 1 the variance stays.
void OneBitAdamRule::update_weights(zero::ParameterGroup& group, const StepScalars& scalars) {
  const zero::OwnedRange range = group.owned();
  std::vector<kernels::Adam> updates;
  for (const zero::FlatParameter& parameter : group.layout().parameters) {
    const auto own = [&](TensorView view) { return part_of(view, parameter.offset, parameter.elements()); };
    updates.push_back({.master = own(range.master),
                       .moment1 = own(range.states[0]),
                       .moment2 = own(range.states[1]),
                       .copy_out = own(range.copy_out),
                       .gradient = own(range.states[0]),
                       .lr = scalars.lr,
                       .beta1 = 0.0,
                       .beta2 = 1.0,
                       .epsilon = context_.config.epsilon,
                       .weight_decay = weight_decay_of(parameter, context_.config)});
  }
  context_.resources.kernels.adam(updates);
}

}  // namespace trivet
