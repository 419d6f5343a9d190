// y[B, O, P, Q] = convolution of x[B, C, H, W] with weight[O, C, K, K] (+ bias[O]); see kernels/convolution.h.
//
// Weight and bias start uniform in [-1 / sqrt(C K K), 1 / sqrt(C K K)), as PyTorch's Conv2d.
#pragma once

#include <vector>

#include "core/layer.h"
#include "kernels/convolution.h"

namespace trivet::model {

class Convolution : public Layer {
 public:
  struct Options {
    int64_t in_channels = 0, out_channels = 0;
    int64_t kernel = 3, stride = 1, padding = 0;
    bool bias = true;
  };
  explicit Convolution(const Options& options);

  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  Shape output_shape(const Shape& input) const override;
  std::string_view type() const override { return "conv"; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;

 private:
  enum Slot { kX, kDy };  // the places of Saved that this layer uses

  Options options_;
  kernels::Window window_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace trivet::model
