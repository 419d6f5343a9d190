#include "engine/optimizer/adagrad.h"

#include "kernels/kernels.h"

namespace trivet {

void AdagradRule::update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) {
  side.kernels.adagrad({.master = elements.master(),
                        .sum_of_squares = elements.state(0),
                        .copy_out = elements.copy_out(),
                        .gradient = elements.gradient,
                        .verdict = side.verdict,
                        .lr = scalars.lr,
                        .epsilon = config_.epsilon,
                        .weight_decay = elements.weight_decay,
                        .gradient_scale = elements.gradient_scale});
}

}  // namespace trivet
