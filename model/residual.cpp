#include "model/residual.h"

#include "kernels/kernels.h"

namespace trivet::model {

Residual::Residual(const Options& options, std::unique_ptr<Norm> norm, std::unique_ptr<Layer> inner,
                   std::unique_ptr<Norm> post_norm)
    : scale_(options.scale),
      dropout_(options.dropout),
      dropout_name_(options.name + "." + options.inner_name + ".residual"),
      norm_(std::move(norm)),
      post_norm_(std::move(post_norm)),
      inner_(std::move(inner)) {
  if (norm_) norm_index_ = sub_layers_.add(options.norm_name, *norm_);
  inner_index_ = sub_layers_.add(options.inner_name, *inner_);
  if (post_norm_) post_norm_index_ = sub_layers_.add(options.post_norm_name, *post_norm_);
}

void Residual::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  run_norm(context, weights, x, saved);
  add_inner(context, weights, x, y, saved);
}

void Residual::forward_again(Context& context, Weights weights, ConstTensorView x, Saved& saved) const {
  run_norm(context, weights, x, saved);
  run_inner_again(context, weights, x, saved);
}

void Residual::run_norm(Context& context, Weights weights, ConstTensorView x, Saved& saved) const {
  if (norm_)
    norm_->forward(context, sub_layers_.of(norm_index_, weights), x, keep_normed(context, x, saved), saved.child(norm_index_));
}

TensorView Residual::keep_input(Context& context, ConstTensorView x, Saved& saved) const {
  return saved.keep(context.arena, kInput, x.dtype, x.shape);
}

TensorView Residual::keep_normed(Context& context, ConstTensorView x, Saved& saved) const {
  return saved.keep(context.arena, kNormed, x.dtype, x.shape);
}

kernels::DropoutAdd Residual::forward_to_sum(Context& context, Weights weights, ConstTensorView x, TensorView branch,
                                             TensorView y, Saved& saved) const {
  run_norm(context, weights, x, saved);
  return run_inner(context, weights, x, branch, y, saved);
}

void Residual::forward_from_sum(Context& context, Weights weights, const kernels::DropoutAdd& sum, TensorView y,
                                Saved& saved) const {
  norm_->forward_of_sum(context, sub_layers_.of(norm_index_, weights), sum, saved[kNormed], saved.child(norm_index_));
  add_inner(context, weights, sum.out, y, saved);
}

void Residual::forward_again_from_sum(Context& context, Weights weights, const kernels::DropoutAdd& sum, Saved& saved) const {
  norm_->forward_of_sum(context, sub_layers_.of(norm_index_, weights), sum, saved[kNormed], saved.child(norm_index_));
  run_inner_again(context, weights, sum.out, saved);
}

void Residual::run_inner_again(Context& context, Weights weights, ConstTensorView x, Saved& saved) const {
  if (!post_norm_)
    return inner_->forward_again(context, sub_layers_.of(inner_index_, weights), input_of_inner(x, saved),
                                 saved.child(inner_index_));
  const ScopedTensor branch(context.arena, x.dtype, x.shape);
  run_inner(context, weights, x, branch, {}, saved);
}

// Runs the inner layer and returns the sum that is left to do for y.
kernels::DropoutAdd Residual::run_inner(Context& context, Weights weights, ConstTensorView x, TensorView branch, TensorView y,
                                        Saved& saved) const {
  const TensorView out = post_norm_ ? saved.keep(context.arena, kInner, x.dtype, x.shape) : branch;
  inner_->forward(context, sub_layers_.of(inner_index_, weights), input_of_inner(x, saved), out, saved.child(inner_index_));
  if (post_norm_)
    post_norm_->forward(context, sub_layers_.of(post_norm_index_, weights), out, branch, saved.child(post_norm_index_));
  if (scale_ != 1) context.kernels.scale(branch, scale_);
  return {.x = branch, .residual = x, .out = y, .dropout = dropout_site(context, dropout_name_, dropout_, x.shape)};
}

void Residual::add_inner(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  const ScopedTensor branch(context.arena, x.dtype, x.shape);
  context.kernels.dropout_add(run_inner(context, weights, x, branch, y, saved));
}

void Residual::run_backward(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const {
  if (!norm_) {
    through_branch(pass, dy, dx);
    return pass.context().kernels.add(dy, dx);
  }
  const IntermediateGradient dnormed(pass, kDnormed, dy.dtype, dy.shape);
  through_branch(pass, dy, dnormed);
  through_norm(pass, dnormed, dy, dx);
}

// Without dropout and a scale, the gradient of what is added is dy itself.
void Residual::through_branch(const BackwardPass& pass, ConstTensorView dy, TensorView dnormed) const {
  const kernels::DropoutSite site = dropout_site(pass.context(), dropout_name_, dropout_, dy.shape);
  if (site.rate == 0 && scale_ == 1) return through_inner(pass, dy, dnormed);
  const IntermediateGradient dbranch(pass, kDbranch, dy.dtype, dy.shape);
  if (site.rate == 0)
    pass.context().kernels.copy(dy, dbranch);
  else
    pass.context().kernels.dropout_backward({.dy = dy, .dx = dbranch, .dropout = site});
  if (scale_ != 1) pass.context().kernels.scale(dbranch, scale_);
  through_inner(pass, dbranch, dnormed);
}

void Residual::through_inner(const BackwardPass& pass, ConstTensorView dbranch, TensorView dnormed) const {
  if (!post_norm_) return pass.through(*inner_, sub_layers_, inner_index_, dbranch, dnormed);
  const IntermediateGradient dinner(pass, kDinner, dbranch.dtype, dbranch.shape);
  pass.through(*post_norm_, sub_layers_, post_norm_index_, dbranch, dinner);
  pass.through(*inner_, sub_layers_, inner_index_, dinner, dnormed);
}

// dx = dy + norm's part, rounded once.
void Residual::through_norm(const BackwardPass& pass, ConstTensorView dnormed, ConstTensorView dy, TensorView dx) const {
  Context& context = pass.context();
  Saved& saved = pass.saved().child(norm_index_);
  norm_->backward_input(context, sub_layers_.of(norm_index_, pass.weights()), dnormed, dx, saved, dy);
  if (pass.fused()) norm_->backward_weight(context, sub_layers_.of(norm_index_, pass.gradients()), saved);
}

void Residual::backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const {
  run_backward(BackwardPass(context, weights, saved), dy, dx);
}

void Residual::backward(Context& context, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                        Saved& saved) const {
  run_backward(BackwardPass(context, weights, gradients, saved), dy, dx);
}

void Residual::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  if (post_norm_)
    post_norm_->backward_weight(context, sub_layers_.of(post_norm_index_, gradients), saved.child(post_norm_index_));
  inner_->backward_weight(context, sub_layers_.of(inner_index_, gradients), saved.child(inner_index_));
  if (norm_) norm_->backward_weight(context, sub_layers_.of(norm_index_, gradients), saved.child(norm_index_));
}

}  // namespace trivet::model
