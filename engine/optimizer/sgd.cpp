#include "engine/optimizer/sgd.h"

#include "kernels/kernels.h"

namespace trivet {

void SgdRule::update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) {
  side.kernels.sgd({.master = elements.master(),
                    .momentum_buffer = elements.state(0),
                    .copy_out = elements.copy_out(),
                    .gradient = elements.gradient,
                    .verdict = side.verdict,
                    .lr = scalars.lr,
                    .momentum = config_.momentum,
                    .dampening = config_.dampening,
                    .weight_decay = elements.weight_decay,
                    .gradient_scale = elements.gradient_scale,
                    .step = scalars.update,
                    .nesterov = config_.nesterov});
}

}  // namespace trivet
