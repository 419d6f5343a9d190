// y[T, out] = x[T, in] W^T + b, with W[out, in] as in all common checkpoint formats.
//
// If tensor ranks share W (Shoeybi et al. 2019), Split says how:
//   dim 0  each rank computes its columns of y from all of x; dx is the sum over ranks   ("column parallel")
//   dim 1  each rank has its columns of x; y is the sum over ranks, and b is added once  ("row parallel")
// x and y are as wide as the rank's own part of W. The sum of dx overlaps with the computation of W's gradient in backward.
// With sequence parallelism a rank has only its own tokens of the tensors that would otherwise be whole on every rank: x and dx
// (dim 0), y and dy (dim 1), or all four (no split).
//
// Adapters, if it has any, add to y and to dx (model/adapters.h). Their parameters follow weight and bias.
#pragma once

#include <string>
#include <vector>

#include "model/adapters.h"
#include "tensor_parallel/axis_sum.h"

namespace trivet::model {

class Linear : public Layer {
 public:
  struct Options {
    int64_t in = 0, out = 0;
    bool bias = true;
    double init_deviation = 0.02;
    double init_bound = 0;  // > 0: weight and bias are uniform in [-init_bound, init_bound) instead
    Split split;            // splits the weight; along dim 0 the bias is split, too
    Adapters::Options adapters = {};
  };
  explicit Linear(const Options& options);

  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  Shape output_shape(const Shape& input) const override;  // shape for the unsplit layer
  bool allows_sequence_parallelism() const override { return true; }
  bool allows_context_parallelism() const override { return true; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;
  void backward(Context&, Weights, Gradients, ConstTensorView dy, TensorView dx, Saved&) const override;

  // Fused with a GELU, in the same pass as the product:
  //   forward: also computes activated = gelu(y); not possible if y is a sum over ranks (dim 1)
  //   backward: x is gelu(before), and dx is the gradient of `before`; not possible if dx is a sum over ranks (dim 0)
  void forward_with_gelu(Context&, Weights, ConstTensorView x, TensorView y, TensorView activated, Saved&) const;
  void backward_input_with_gelu(Context&, Weights, ConstTensorView dy, ConstTensorView before, TensorView dx, Saved&) const;
  void backward_with_gelu(Context&, Weights, Gradients, ConstTensorView dy, ConstTensorView before, TensorView dx,
                          Saved&) const;

  // Makes what forward keeps, without y, whose shape is given.
  void keep_again(Context&, Weights, ConstTensorView x, const Shape& y, Saved&) const;
  // Replaces the x of forward, which was not kept, by a recomputed one in other memory.
  void renew_input(ConstTensorView x, Saved& saved) const;

 protected:
  // The gradients of weight and bias. `x` and `dy` have all tokens if W is split.
  virtual void make_weight_gradients(Context&, Gradients, ConstTensorView x, ConstTensorView dy, const Saved&) const;

 private:
  enum Slot { kX, kDy };  // the places of Saved that this layer uses

  bool column_parallel() const { return options_.split.dim == 0; }
  bool row_parallel() const { return options_.split.dim == 1; }
  tensor_parallel::AxisSum start_input_gradient(Context&, Weights, ConstTensorView dy, ConstTensorView before_gelu,
                                                TensorView dx) const;
  // Adds what the adapters contribute to dx, which is the gradient of `before_gelu` if that is given.
  void add_adapted(Context&, Weights, ConstTensorView dy, ConstTensorView before_gelu, TensorView dx, Saved&) const;
  size_t own_parameters() const { return options_.bias ? 2 : 1; }
  bool adapted() const { return !adapters_.empty(); }

  static constexpr int kAdapters = 0;  // their child of Saved

  Options options_;
  std::vector<ParameterSpec> parameters_;
  Adapters adapters_;
};

}  // namespace trivet::model
