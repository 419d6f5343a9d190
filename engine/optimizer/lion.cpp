#include "engine/optimizer/lion.h"

#include "kernels/kernels.h"

namespace trivet {

void LionRule::update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) {
  side.kernels.lion({.master = elements.master(),
                     .moment = elements.state(0),
                     .copy_out = elements.copy_out(),
                     .gradient = elements.gradient,
                     .verdict = side.verdict,
                     .lr = scalars.lr,
                     .beta1 = scalars.beta1,
                     .beta2 = scalars.beta2,
                     .weight_decay = elements.weight_decay,
                     .gradient_scale = elements.gradient_scale});
}

}  // namespace trivet
