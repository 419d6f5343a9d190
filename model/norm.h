// The two normalizations over the hidden dim: LayerNorm (GPT-2) and RmsNorm (Llama). Sizes and formulas are in
// kernels/norms.h.
#pragma once

#include <memory>
#include <vector>

#include "core/layer.h"
#include "kernels/elementwise.h"

namespace trivet::model {

enum class NormKind { LayerNorm, RmsNorm };

class Norm : public Layer {
 public:
  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  Shape output_shape(const Shape& input) const override { return input; }
  bool allows_sequence_parallelism() const override { return true; }
  bool allows_context_parallelism() const override { return true; }
  void forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const override {
    run(context, weights, x, {}, y, saved);
  }
  // Computes `sum` and the norm of its result, in one pass over both. y may have the memory of sum.x.
  void forward_of_sum(Context& context, Weights weights, const kernels::DropoutAdd& sum, TensorView y, Saved& saved) const {
    run(context, weights, sum.out, sum, y, saved);
  }
  void backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const override {
    backward_input(context, weights, dy, dx, saved, {});
  }
  // `residual`: the gradient that bypasses the norm. It is added before dx is rounded, once. May be absent.
  virtual void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&, ConstTensorView residual) const = 0;

 protected:
  enum Slot { kX, kDy, kRstd, kMean };  // the places of Saved that this layer uses

  explicit Norm(std::vector<ParameterSpec> parameters) : parameters_(std::move(parameters)) {}

 private:
  // Unless `sum` is absent, it is computed first and yields x.
  virtual void run(Context&, Weights, ConstTensorView x, const kernels::DropoutAdd& sum, TensorView y, Saved&) const = 0;

  std::vector<ParameterSpec> parameters_;
};

class LayerNorm : public Norm {
 public:
  LayerNorm(int64_t hidden, double epsilon, bool bias);

  using Norm::backward_input;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&, ConstTensorView residual) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;

 private:
  void run(Context&, Weights, ConstTensorView x, const kernels::DropoutAdd& sum, TensorView y, Saved&) const override;

  float epsilon_;
  bool bias_;
};

class RmsNorm : public Norm {
 public:
  RmsNorm(int64_t hidden, double epsilon);

  using Norm::backward_input;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&, ConstTensorView residual) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;

 private:
  void run(Context&, Weights, ConstTensorView x, const kernels::DropoutAdd& sum, TensorView y, Saved&) const override;

  float epsilon_;
};

// Only LayerNorm uses `bias`.
std::unique_ptr<Norm> make_norm(NormKind kind, int64_t hidden, double epsilon, bool bias);

}  // namespace trivet::model
