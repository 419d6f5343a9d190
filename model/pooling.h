// y[B, C, P, Q] = the largest pixel, or the average, of each window of x[B, C, H, W]; see kernels/convolution.h.
#pragma once

#include "core/layer.h"
#include "kernels/convolution.h"

namespace trivet::model {

class Pool : public Layer {
 public:
  struct Options {
    kernels::Pooling kind = kernels::Pooling::Max;
    int64_t size = 2, stride = 2, padding = 0;
    bool global = false;  // the window is the whole image; size, stride and padding are not used
  };
  explicit Pool(const Options& options) : options_(options) {}

  std::span<const ParameterSpec> parameters() const override { return {}; }
  Shape output_shape(const Shape& input) const override;
  std::string_view type() const override { return options_.kind == kernels::Pooling::Max ? "max_pool" : "average_pool"; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override {}

 private:
  enum Slot { kX };  // the place of Saved that this layer uses

  kernels::Window window_of(const Shape& image) const;

  Options options_;
};

}  // namespace trivet::model
