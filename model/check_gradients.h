// Proves the gradients of a layer, one's own or one of Trivet's, against central differences in float64 on the CPU.
//
//   const auto result = check_gradients(layer, {.input_shape = {2, 5, 8}});
//   result.worst_error   1e-9, say: relative to the largest gradient of the tensor it was found in
//   result.where         "weight [dw accumulated]", for the message of a failed test
//
// What is compared: dx and the gradient of every parameter, made by each way that an engine may go: backward_input and
// backward_weight apart, writing over garbage (`accumulate` false), adding to what is there, and one or the other in turn,
// since each parameter has its own flag; backward; and for a layer that computes the loss also forward_backward. A layer whose
// output_shape is absent ({0}) is such a layer; its loss is context.loss[0] / the number of targets. Weights are drawn with a
// spread of 0.5 so that no gradient vanishes; nothing of the layer's own initial values is used.
#pragma once

#include <cstdint>
#include <string>

#include "core/layer.h"

namespace trivet::model {

struct GradientCheck {
  Shape input_shape;
  int64_t vocabulary = 0;     // > 0: the input is int32 tokens below it (there is no dx)
  int64_t targets_below = 0;  // for the loss layer: int32 targets below it, some of which do not count
  uint64_t seed = 1;
  bool training = true;  // dropout acts
  int64_t samples = 24;  // elements of each tensor that are perturbed; 0: all
  double step = 1e-3;    // the difference is of fourth order: its error is about step^4
};

struct GradientCheckResult {
  double worst_error = 0;
  std::string where;
  int64_t compared = 0;
};

GradientCheckResult check_gradients(const Layer& layer, const GradientCheck& check);

}  // namespace trivet::model
