// y[T, out] = x[T, in] W^T + b, with W[out, in] as in every checkpoint format of the field.
#pragma once

#include <string>
#include <vector>

#include "core/layer.h"

namespace trivet::model {

class Linear : public Layer {
 public:
  struct Options {
    int64_t in = 0, out = 0;
    bool bias = true;
    double init_deviation = 0.02;
    Split split;  // of the weight; the bias follows it along dim 0
  };
  explicit Linear(const Options& options);

  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  Shape output_shape(const Shape& input) const override;
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;

 private:
  Options options_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace trivet::model
