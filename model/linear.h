// y[T, out] = x[T, in] W^T + b, with W[out, in] as in every checkpoint format of the field.
//
// Where tensor ranks share W (Shoeybi et al. 2019), Split says how:
//   dim 0  each makes its columns of y from all of x; dx is the sum over ranks   ("column parallel")
//   dim 1  each has its columns of x; y is the sum over ranks, b is added once   ("row parallel")
// x and y are as wide as the rank's own part of W. The sum of dx goes on while backward makes the gradient of W. With sequence
// parallelism what would be whole is of the rank's own tokens: x and dx (dim 0), y and dy (dim 1), all of them without a split.
#pragma once

#include <string>
#include <vector>

#include "model/axis_sum.h"

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
  Shape output_shape(const Shape& input) const override;  // of the whole
  bool allows_sequence_parallelism() const override { return true; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;
  void backward(Context&, Weights, Gradients, ConstTensorView dy, TensorView dx, Saved&) const override;

  // With a GELU behind or before it, in the pass of the product:
  //   forward: also activated = gelu(y), where y is no sum over ranks (dim 1)
  //   backward: dx is the gradient of `before`, of which x is the gelu, where dx is no sum over ranks (dim 0)
  void forward_with_gelu(Context&, Weights, ConstTensorView x, TensorView y, TensorView activated, Saved&) const;
  void backward_input_with_gelu(Context&, Weights, ConstTensorView dy, ConstTensorView before, TensorView dx, Saved&) const;
  void backward_with_gelu(Context&, Weights, Gradients, ConstTensorView dy, ConstTensorView before, TensorView dx,
                          Saved&) const;

  // The x of forward was not kept and lies, made again, elsewhere.
  void renew_input(ConstTensorView x, Saved& saved) const;

 protected:
  // `x`, `dy`: of all tokens where W is split.
  virtual void make_weight_gradients(Context&, Gradients, ConstTensorView x, ConstTensorView dy, const Saved&) const;

 private:
  bool column_parallel() const { return options_.split.dim == 0; }
  bool row_parallel() const { return options_.split.dim == 1; }
  AxisSum start_input_gradient(Context&, Weights, ConstTensorView dy, ConstTensorView before_gelu, TensorView dx) const;

  Options options_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace trivet::model
