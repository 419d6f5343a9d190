// Layers without parameters that treat each element by itself, and one that only changes the shape.
#pragma once

#include <string>

#include "core/layer.h"

namespace trivet::model {

enum class Pointwise { Relu, Gelu };

class PointwiseLayer : public Layer {
 public:
  explicit PointwiseLayer(Pointwise function) : function_(function) {}

  std::span<const ParameterSpec> parameters() const override { return {}; }
  Shape output_shape(const Shape& input) const override { return input; }
  std::string_view type() const override { return function_ == Pointwise::Relu ? "relu" : "gelu"; }
  bool allows_sequence_parallelism() const override { return true; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override {}

 private:
  enum Slot { kX };  // the place of Saved that this layer uses

  Pointwise function_;
};

// Drops elements in training with probability `rate` and divides the others by 1 - rate (kernels/elementwise.h).
class Dropout : public Layer {
 public:
  // `name`: of the layer in the model, which identifies its random numbers.
  Dropout(std::string name, double rate) : name_(std::move(name)), rate_(rate) {}

  std::span<const ParameterSpec> parameters() const override { return {}; }
  Shape output_shape(const Shape& input) const override { return input; }
  std::string_view type() const override { return "dropout"; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override {}

 private:
  std::string name_;
  double rate_;
};

// [B, ...] -> [B, elements of a sample]. It copies, because the caller owns both x and y.
class Flatten : public Layer {
 public:
  std::span<const ParameterSpec> parameters() const override { return {}; }
  Shape output_shape(const Shape& input) const override { return {input[0], input[0] == 0 ? 0 : input.elements() / input[0]}; }
  std::string_view type() const override { return "flatten"; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override {}
};

}  // namespace trivet::model
