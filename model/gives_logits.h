// The interface of a loss layer for generating text. (core/logits_reader.h has the one for showing evaluations.)
#pragma once

#include "core/layer.h"

namespace trivet::model {

class GivesLogits {
 public:
  virtual ~GivesLogits() = default;
  // Computes logits[R, V] of the rows x[R, H], whole on every tensor rank.
  virtual void logits(Context&, Weights, ConstTensorView x, TensorView logits) const = 0;
};

}  // namespace trivet::model
