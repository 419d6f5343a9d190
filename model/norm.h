// The two normalisations over the hidden dim: LayerNorm (GPT-2) and RmsNorm (Llama). Sizes and formulas: kernels/kernels.h.
#pragma once

#include <memory>
#include <vector>

#include "core/layer.h"

namespace trivet::model {

enum class NormKind { LayerNorm, RmsNorm };

class Norm : public Layer {
 public:
  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  Shape output_shape(const Shape& input) const override { return input; }
  bool allows_sequence_parallelism() const override { return true; }
  void backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const override {
    backward_input(context, weights, dy, dx, saved, false);
  }
  // dx += instead of dx = where a residual's gradient is already in dx: rounded once.
  virtual void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&, bool accumulate) const = 0;

 protected:
  explicit Norm(std::vector<ParameterSpec> parameters) : parameters_(std::move(parameters)) {}

 private:
  std::vector<ParameterSpec> parameters_;
};

class LayerNorm : public Norm {
 public:
  LayerNorm(int64_t hidden, double epsilon, bool bias);

  using Norm::backward_input;
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&, bool accumulate) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;

 private:
  float epsilon_;
  bool bias_;
};

class RmsNorm : public Norm {
 public:
  RmsNorm(int64_t hidden, double epsilon);

  using Norm::backward_input;
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&, bool accumulate) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;

 private:
  float epsilon_;
};

// `bias` is of LayerNorm alone.
std::unique_ptr<Norm> make_norm(NormKind kind, int64_t hidden, double epsilon, bool bias);

}  // namespace trivet::model
