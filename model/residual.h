// y = x + dropout(scale * inner(norm(x))): half of a transformer block (pre-norm, as in GPT-2 and Llama). With a second norm,
// y = x + dropout(scale * post_norm(inner(norm(x)))), as in Gemma; OLMo 2 has the second norm without the first.
#pragma once

#include <memory>
#include <string>

#include "model/norm.h"
#include "model/sub_layers.h"

namespace trivet::model {

class Residual : public Layer {
 public:
  struct Options {
    std::string name;  // full name in the model: it identifies the random draws of dropout
    std::string norm_name, inner_name, post_norm_name;
    double scale = 1;
    double dropout = 0;
  };
  // Each norm may be null.
  Residual(const Options& options, std::unique_ptr<Norm> norm, std::unique_ptr<Layer> inner,
           std::unique_ptr<Norm> post_norm = nullptr);

  std::span<const ParameterSpec> parameters() const override { return sub_layers_.parameters(); }
  Shape output_shape(const Shape& input) const override { return input; }
  bool allows_sequence_parallelism() const override { return inner_->allows_sequence_parallelism(); }
  bool allows_context_parallelism() const override { return inner_->allows_context_parallelism(); }
  int64_t experts() const override { return inner_->experts(); }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;
  void backward(Context&, Weights, Gradients, ConstTensorView dy, TensorView dx, Saved&) const override;
  // Leaves out what only y needs.
  void forward_again(Context&, Weights, ConstTensorView x, Saved&) const override;

  bool begins_with_norm() const { return norm_ != nullptr; }
  // Two residuals in a row, second(first(x)), of which the second begins with a norm: it also computes the sum at the end of
  // the first, in one pass over both.
  //
  //   middle = second.keep_input(x)                      like x
  //   normed = second.keep_normed(x)                     like x; holds what the first adds, later the output of second's norm
  //   sum = first.forward_to_sum(x, normed, middle)      everything except middle = x + dropout(inner(norm(x)))
  //   second.forward_from_sum(sum, y)                    computes middle, then forward(middle)
  //   second.forward_again_from_sum(sum)                 the same without y
  TensorView keep_input(Context&, ConstTensorView x, Saved&) const;
  TensorView keep_normed(Context&, ConstTensorView x, Saved&) const;
  kernels::DropoutAdd forward_to_sum(Context&, Weights, ConstTensorView x, TensorView branch, TensorView y, Saved&) const;
  void forward_from_sum(Context&, Weights, const kernels::DropoutAdd& sum, TensorView y, Saved&) const;
  void forward_again_from_sum(Context&, Weights, const kernels::DropoutAdd& sum, Saved&) const;

 private:
  enum Slot { kInput, kNormed, kDinner, kDnormed, kInner, kDbranch };  // the places of Saved that this layer uses

  ConstTensorView input_of_inner(ConstTensorView x, const Saved& saved) const { return norm_ ? saved[kNormed] : x; }
  kernels::DropoutAdd run_inner(Context&, Weights, ConstTensorView x, TensorView branch, TensorView y, Saved&) const;
  void run_inner_again(Context&, Weights, ConstTensorView x, Saved&) const;
  void run_norm(Context&, Weights, ConstTensorView x, Saved&) const;
  void add_inner(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const;
  void run_backward(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const;
  void through_branch(const BackwardPass& pass, ConstTensorView dy, TensorView dnormed) const;
  void through_inner(const BackwardPass& pass, ConstTensorView dbranch, TensorView dnormed) const;
  void through_norm(const BackwardPass& pass, ConstTensorView dnormed, ConstTensorView dy, TensorView dx) const;

  double scale_, dropout_;
  std::string dropout_name_;
  std::unique_ptr<Norm> norm_, post_norm_;
  std::unique_ptr<Layer> inner_;
  SubLayers sub_layers_;
  int norm_index_ = -1, inner_index_, post_norm_index_ = -1;
};

}  // namespace trivet::model
