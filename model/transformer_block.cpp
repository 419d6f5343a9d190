#include "model/transformer_block.h"

namespace trivet::model {
namespace {

std::unique_ptr<Norm> norm_if(bool wanted, const TransformerBlock::Options& options) {
  if (!wanted) return nullptr;
  return make_norm(options.norm, options.attention.hidden, options.norm_epsilon, options.norm_bias);
}
std::unique_ptr<Norm> pre_norm_of(const TransformerBlock::Options& options) { return norm_if(options.pre_norm, options); }
std::unique_ptr<Norm> post_norm_of(const TransformerBlock::Options& options) { return norm_if(options.post_norm, options); }
std::unique_ptr<Layer> mlp_of(const TransformerBlock::Options& options) {
  if (options.experts) return std::make_unique<ExpertMlp>(*options.experts);
  return std::make_unique<Mlp>(options.mlp);
}

}  // namespace

TransformerBlock::TransformerBlock(const std::string& name, const Options& options)
    : window_(options.attention.window),
      rotates_(options.attention.rotary_base > 0),
      attention_({.name = name,
                  .norm_name = "norm1",
                  .inner_name = "attention",
                  .post_norm_name = "post_norm1",
                  .scale = options.residual_scale,
                  .dropout = options.dropout},
                 pre_norm_of(options), std::make_unique<Attention>(name + ".attention", options.attention),
                 post_norm_of(options)),
      mlp_({.name = name,
            .norm_name = "norm2",
            .inner_name = "mlp",
            .post_norm_name = "post_norm2",
            .scale = options.residual_scale,
            .dropout = options.dropout},
           pre_norm_of(options), mlp_of(options), post_norm_of(options)) {
  attention_index_ = sub_layers_.add("", attention_);
  mlp_index_ = sub_layers_.add("", mlp_);
  if (options.frozen) sub_layers_.freeze();
}

void TransformerBlock::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  if (!mlp_.begins_with_norm()) {
    const TensorView middle = forward_to_middle(context, weights, x, saved);
    return mlp_.forward(context, sub_layers_.of(mlp_index_, weights), middle, y, saved.child(mlp_index_));
  }
  const kernels::DropoutAdd sum = forward_to_mlp(context, weights, x, saved);
  mlp_.forward_from_sum(context, sub_layers_.of(mlp_index_, weights), sum, y, saved.child(mlp_index_));
}

void TransformerBlock::forward_again(Context& context, Weights weights, ConstTensorView x, Saved& saved) const {
  if (!mlp_.begins_with_norm()) {
    const TensorView middle = forward_to_middle(context, weights, x, saved);
    return mlp_.forward_again(context, sub_layers_.of(mlp_index_, weights), middle, saved.child(mlp_index_));
  }
  const kernels::DropoutAdd sum = forward_to_mlp(context, weights, x, saved);
  mlp_.forward_again_from_sum(context, sub_layers_.of(mlp_index_, weights), sum, saved.child(mlp_index_));
}

TensorView TransformerBlock::forward_to_middle(Context& context, Weights weights, ConstTensorView x, Saved& saved) const {
  const TensorView middle = mlp_.keep_input(context, x, saved.child(mlp_index_));
  attention_.forward(context, sub_layers_.of(attention_index_, weights), x, middle, saved.child(attention_index_));
  return middle;
}

kernels::DropoutAdd TransformerBlock::forward_to_mlp(Context& context, Weights weights, ConstTensorView x, Saved& saved) const {
  Saved &of_attention = saved.child(attention_index_), &of_mlp = saved.child(mlp_index_);
  const TensorView middle = mlp_.keep_input(context, x, of_mlp);
  const TensorView normed = mlp_.keep_normed(context, x, of_mlp);
  return attention_.forward_to_sum(context, sub_layers_.of(attention_index_, weights), x, normed, middle, of_attention);
}

void TransformerBlock::run_backward(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const {
  const IntermediateGradient dmiddle(pass, kDmiddle, dy.dtype, dy.shape);
  pass.through(mlp_, sub_layers_, mlp_index_, dy, dmiddle);
  pass.through(attention_, sub_layers_, attention_index_, dmiddle, dx);
}

void TransformerBlock::backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx,
                                      Saved& saved) const {
  run_backward(BackwardPass(context, weights, saved), dy, dx);
}

void TransformerBlock::backward(Context& context, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                                Saved& saved) const {
  run_backward(BackwardPass(context, weights, gradients, saved), dy, dx);
}

void TransformerBlock::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  mlp_.backward_weight(context, sub_layers_.of(mlp_index_, gradients), saved.child(mlp_index_));
  attention_.backward_weight(context, sub_layers_.of(attention_index_, gradients), saved.child(attention_index_));
}

}  // namespace trivet::model
