// A layer whose gradient overflows on demand. It makes a skipped step in which every other number is known.
#pragma once

#include <limits>
#include <memory>

#include "core/layer.h"

namespace trivet::test {

// Does what `layer` does; while `overflows` is true, the first element of its dx is infinite. float32 only.
class Overflowing final : public Layer {
 public:
  Overflowing(std::unique_ptr<Layer> layer, const bool& overflows) : layer_(std::move(layer)), overflows_(overflows) {}
  std::span<const ParameterSpec> parameters() const override { return layer_->parameters(); }
  Shape output_shape(const Shape& input) const override { return layer_->output_shape(input); }
  LayerRole role() const override { return layer_->role(); }
  void forward(Context& c, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const override {
    layer_->forward(c, weights, x, y, saved);
  }
  void backward_input(Context& c, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const override {
    layer_->backward_input(c, weights, dy, dx, saved);
    overflow(dx);
  }
  void backward_weight(Context& c, Gradients gradients, const Saved& saved) const override {
    layer_->backward_weight(c, gradients, saved);
  }
  void backward(Context& c, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                Saved& saved) const override {
    layer_->backward(c, weights, gradients, dy, dx, saved);
    overflow(dx);
  }

 private:
  void overflow(TensorView dx) const {
    if (overflows_) dx.as<float>()[0] = std::numeric_limits<float>::infinity();
  }

  std::unique_ptr<Layer> layer_;
  const bool& overflows_;
};

}  // namespace trivet::test
