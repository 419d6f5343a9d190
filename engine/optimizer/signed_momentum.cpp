#include "engine/optimizer/signed_momentum.h"

#include "kernels/kernels.h"

namespace trivet {

void add_own_gradient(const UpdateSide& side, const Elements& elements, const OptimizerConfig& config) {
  const double share = (1 - config.beta1) * elements.group.group->axis().size();
  side.kernels.momentum_update({.momentum_buffer = elements.state(0),
                                .out = elements.state(0),
                                .gradient = elements.gradient,
                                .verdict = side.verdict,
                                .momentum = config.beta1,
                                .gradient_scale = elements.gradient_scale / (1 / share),
                                .nesterov = false});
}

void average_momentum(zero::ParameterGroup& group, const RankResources& resources) {
  const zero::OwnedRange range = group.owned();
  const TensorView momentum = range.states[0];
  resources.kernels.add(momentum, group.worker_error());
  zero::average_signs(
      {.values = group.worker_error(), .server_error = group.server_error(), .variance = range.states[1], .average = momentum},
      resources.channels.group(Purpose::Reduce), resources.channels.stream(Purpose::Control), resources.kernels,
      resources.buffers);
}

}  // namespace trivet
