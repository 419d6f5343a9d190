// Checks the gradients of a layer, your own or one of Trivet's, against central differences in float64 on the CPU.
//
//   const auto result = check_gradients(layer, {.input_shape = {2, 5, 8}});
//   result.worst_error   for example 1e-9, relative to the largest gradient of the same tensor
//   result.where         "weight[17] (accumulated)", for the message of a failed test
//
// It compares dx and the gradient of every parameter, computed in each of the ways that an engine may choose. The first is
// backward_input followed by backward_weight: writing over garbage (`accumulate` false), adding to existing values, and with
// the two alternating, since each parameter has its own flag. The second is backward. The third, for a layer that computes the
// loss, is forward_backward. A layer computes the loss if its output_shape is absent ({0}); its loss is context.loss[0] / the
// number of targets. Weights are drawn with a spread of 0.5 so that no gradient vanishes; the layer's own initial values are
// not used. Running averages (ParameterUpdate) have no gradients and are skipped.
#pragma once

#include <cstdint>
#include <string>

#include "core/layer.h"

namespace trivet::model {

struct GradientCheck {
  Shape input_shape;
  int64_t vocabulary = 0;     // > 0: the input is int32 tokens below this number (there is no dx)
  int64_t targets_below = 0;  // for the loss layer: int32 targets below this number, some of which are -1
  Shape targets_shape;        // without dimensions: one target for each row of the input
  bool pairs = false;         // for a loss layer that compares pairs of answers, which are neighbours
  uint64_t seed = 1;
  bool training = true;  // dropout is active
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
