// y = x + dropout(inner(norm(x))): half of a transformer block (pre-norm, as GPT-2 and Llama have it).
#pragma once

#include <memory>
#include <string>

#include "model/norm.h"
#include "model/parts.h"

namespace trivet::model {

class Residual : public Layer {
 public:
  struct Options {
    std::string name;  // full name in the model: it identifies the random draws of dropout
    std::string norm_name, inner_name;
    double dropout = 0;
  };
  Residual(const Options& options, std::unique_ptr<Norm> norm, std::unique_ptr<Layer> inner);

  std::span<const ParameterSpec> parameters() const override { return parts_.parameters(); }
  Shape output_shape(const Shape& input) const override { return input; }
  bool allows_sequence_parallelism() const override { return inner_->allows_sequence_parallelism(); }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;
  void backward(Context&, Weights, Gradients, ConstTensorView dy, TensorView dx, Saved&) const override;

 private:
  void go_back(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const;
  void through_inner(const BackwardPass& pass, ConstTensorView dy, TensorView dnormed) const;
  void through_norm(const BackwardPass& pass, ConstTensorView dnormed, ConstTensorView dy, TensorView dx) const;

  double dropout_;
  std::string dropout_name_;
  std::unique_ptr<Norm> norm_;
  std::unique_ptr<Layer> inner_;
  Parts parts_;
  int norm_part_, inner_part_;
};

}  // namespace trivet::model
