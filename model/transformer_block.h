// One transformer layer: h = x + dropout(attention(norm1(x))), y = h + dropout(mlp(norm2(h))). With post_norm, what is added is
// dropout(post_norm1(attention(norm1(x)))) and dropout(post_norm2(mlp(norm2(h)))); without pre_norm, there are no norm1 and
// norm2. The MLP may be a mixture of experts.
#pragma once

#include <optional>
#include <string>

#include "model/attention.h"
#include "model/expert_mlp.h"
#include "model/mlp.h"
#include "model/residual.h"

namespace trivet::model {

class TransformerBlock : public Layer {
 public:
  struct Options {
    Attention::Options attention;
    Mlp::Options mlp;
    std::optional<ExpertMlp::Options> experts;  // in place of the MLP
    NormKind norm = NormKind::LayerNorm;
    double norm_epsilon = 1e-5;
    bool norm_bias = true;   // LayerNorm only
    bool pre_norm = true;    // the inputs of attention and MLP are normalized
    bool post_norm = false;  // their outputs are
    double residual_scale = 1;
    double dropout = 0;   // for both residuals
    bool frozen = false;  // only adapters are trained
  };
  TransformerBlock(const std::string& name, const Options& options);

  std::span<const ParameterSpec> parameters() const override { return sub_layers_.parameters(); }
  Shape output_shape(const Shape& input) const override { return input; }
  std::string_view type() const override { return "transformer_block"; }
  bool allows_sequence_parallelism() const override { return mlp_.allows_sequence_parallelism(); }
  bool allows_context_parallelism() const override { return true; }
  int64_t experts() const override { return mlp_.experts(); }
  int64_t work_variant() const override { return 2 * window_ + (rotates_ ? 1 : 0); }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  // Leaves out the projection at the end of the MLP, unless a norm follows it.
  void forward_again(Context&, Weights, ConstTensorView x, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;
  void backward(Context&, Weights, Gradients, ConstTensorView dy, TensorView dx, Saved&) const override;

 private:
  enum Slot { kDmiddle };  // the places of Saved that this layer uses

  TensorView forward_to_middle(Context& context, Weights weights, ConstTensorView x, Saved& saved) const;
  // Computes everything before the MLP's norm and the sum that this norm computes.
  kernels::DropoutAdd forward_to_mlp(Context& context, Weights weights, ConstTensorView x, Saved& saved) const;
  void run_backward(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const;

  int64_t window_;  // of its attention
  bool rotates_;    // its attention rotates queries and keys
  Residual attention_, mlp_;
  SubLayers sub_layers_;
  int attention_index_, mlp_index_;
};

}  // namespace trivet::model
