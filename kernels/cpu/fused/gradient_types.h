// A parameter's gradient has the type of the activations or float32 (kernels/rules.h).
#pragma once

#include "core/dtype.h"

namespace trivet::kernels::cpu {

// body.operator()<T, G>() with the C++ types of the activations and of the gradient.
template <typename Body>
void dispatch_gradient(DType activations, DType gradient, const Body& body) {
  dispatch_float(activations, [&]<typename T>() {
    if (gradient == activations)
      body.template operator()<T, T>();
    else
      body.template operator()<T, float>();
  });
}

}  // namespace trivet::kernels::cpu
