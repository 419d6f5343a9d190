// The last layer of a model that chooses one of V classes for each sample: softmax cross-entropy of the logits x[B, V].
//
// It also counts the samples whose largest logit is that of the right class (Context::correct).
#pragma once

#include "core/layer.h"

namespace trivet::model {

class Classifier : public Layer {
 public:
  std::span<const ParameterSpec> parameters() const override { return {}; }
  Shape output_shape(const Shape&) const override { return {0}; }  // absent: the loss is the output
  LayerRole role() const override { return LayerRole::Loss; }
  std::string_view type() const override { return "classifier"; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override {}
  void forward_backward(Context&, Weights, Gradients, ConstTensorView x, TensorView dx, Saved&) const override;

 private:
  enum Slot { kX };  // the place of Saved that this layer uses
};

}  // namespace trivet::model
