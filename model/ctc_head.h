// The last layer of a model that reads a sequence of characters from each sample: the CTC loss of the logits x[B, T, V], whose
// class 0 is the blank (kernels/ctc.h). Targets are [B, length], padded with -1.
//
// It also counts the samples whose most probable classes spell the target (Context::correct). A sample counts once in the mean
// loss, however long its target is.
#pragma once

#include "core/layer.h"

namespace trivet::model {

class CtcHead : public Layer {
 public:
  std::span<const ParameterSpec> parameters() const override { return {}; }
  Shape output_shape(const Shape&) const override { return {0}; }  // absent: the loss is the output
  LayerRole role() const override { return LayerRole::Loss; }
  std::string_view type() const override { return "ctc"; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override {}
  void forward_backward(Context&, Weights, Gradients, ConstTensorView x, TensorView dx, Saved&) const override;

 private:
  enum Slot { kX };  // the place of Saved that this layer uses
};

}  // namespace trivet::model
