#include "engine/optimizer/signed_momentum.h"

#include "kernels/kernels.h"

namespace trivet {

Number own_gradient_scale(const Elements& elements, double share) {
  const int ranks = elements.group.group->axis().size();
  return elements.gradient_scale / (1 / (share * ranks));
}

void add_own_gradient(const UpdateSide& side, const Elements& elements, const OptimizerConfig& config) {
  side.kernels.momentum_update({.momentum_buffer = elements.state(0),
                                .out = elements.state(0),
                                .gradient = elements.gradient,
                                .verdict = side.verdict,
                                .momentum = config.beta1,
                                .gradient_scale = own_gradient_scale(elements, 1 - config.beta1),
                                .nesterov = false});
}

void average_momentum(zero::ParameterGroup& group, const RankResources& resources) {
  const TensorView momentum = group.owned().states[0];
  resources.kernels.add(momentum, group.worker_error());
  average_by_signs(group, momentum, resources);
}

void average_by_signs(zero::ParameterGroup& group, TensorView average, const RankResources& resources) {
  zero::average_signs({.values = group.worker_error(),
                       .server_error = group.server_error(),
                       .variance = group.owned().states[1],
                       .average = average},
                      resources.channels.group(Purpose::Reduce), resources.channels.stream(Purpose::Control), resources.kernels,
                      resources.buffers);
}

void adam_of_frozen_variance(zero::ParameterGroup& group, const AdamOfFrozenVariance& with, const OptimizerConfig& config,
                             const RankResources& resources) {
  const zero::OwnedRange range = group.owned();
  std::vector<kernels::Adam> updates;
  for (const zero::FlatParameter& parameter : group.layout().parameters) {
    const auto own = [&](TensorView view) { return part_of(view, parameter.offset, parameter.elements()); };
    updates.push_back({.master = own(range.master),
                       .moment1 = own(range.states[0]),
                       .moment2 = own(range.states[1]),
                       .copy_out = own(range.copy_out),
                       .gradient = own(with.gradient),
                       .lr = with.lr,
                       .beta1 = with.beta1,
                       .beta2 = 1.0,
                       .epsilon = config.epsilon,
                       .weight_decay = with.decays ? weight_decay_of(parameter, config) : 0.0,
                       .gradient_scale = with.gradient_scale});
  }
  resources.kernels.adam(updates);
}

}  // namespace trivet
