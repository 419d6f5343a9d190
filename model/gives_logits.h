// What generating text needs of the layer that computes the loss. (What an evaluation shows of it: core/logits_reader.h.)
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
