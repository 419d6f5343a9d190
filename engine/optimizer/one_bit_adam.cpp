#include "engine/optimizer/one_bit_adam.h"

#include "engine/config/optimizer_states.h"
#include "kernels/kernels.h"

namespace trivet {

bool OneBitAdamRule::sends_signs(const StepScalars& scalars) const {
  return trivet::sends_signs(context_.config, static_cast<int64_t>(scalars.update.value()));
}

// The momenta are averaged, so a rank's gradient counts as if all ranks had it.
void OneBitAdamRule::update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) {
  if (!sends_signs(scalars)) {
    StepScalars uncorrected = scalars;
    uncorrected.correction1 = uncorrected.correction2 = 1.0;
    return pending_.add(side, elements, uncorrected, scalars.lr, context_.config);
  }
  const double share = (1 - context_.config.beta1) * elements.group.group->axis().size();
  side.kernels.momentum_update({.momentum_buffer = elements.state(0),
                                .out = elements.state(0),
                                .gradient = elements.gradient,
                                .verdict = side.verdict,
                                .momentum = context_.config.beta1,
                                .gradient_scale = elements.gradient_scale / (1 / share),
                                .nesterov = false});
}

void OneBitAdamRule::finish(const StepScalars& scalars) {
  if (!sends_signs(scalars)) return;
  for (const OwnedGroup& group : context_.owned.groups()) {
    average_momentum(*group.group);
    update_weights(*group.group, scalars);
  }
}

void OneBitAdamRule::average_momentum(zero::ParameterGroup& group) {
  const RankResources& resources = context_.resources;
  const zero::OwnedRange range = group.owned();
  const TensorView momentum = range.states[0];
  resources.kernels.add(momentum, group.worker_error());
  zero::average_signs(
      {.values = group.worker_error(), .server_error = group.server_error(), .variance = range.states[1], .average = momentum},
      resources.channels.group(Purpose::Reduce), resources.channels.stream(Purpose::Control), resources.kernels,
      resources.buffers);
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
