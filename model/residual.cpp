#include "model/residual.h"

namespace trivet::model {
namespace {

enum Slot { kNormed, kDinner, kDnormed };

}  // namespace

Residual::Residual(const Options& options, std::unique_ptr<Norm> norm, std::unique_ptr<Layer> inner)
    : dropout_(options.dropout),
      dropout_name_(options.name + "." + options.inner_name + ".residual"),
      norm_(std::move(norm)),
      inner_(std::move(inner)) {
  norm_part_ = parts_.add(options.norm_name, *norm_);
  inner_part_ = parts_.add(options.inner_name, *inner_);
}

void Residual::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  const TensorView normed = saved.keep(context.arena, kNormed, x.dtype, x.shape);
  norm_->forward(context, parts_.of(norm_part_, weights), x, normed, saved.child(norm_part_));
  const ScopedTensor inner(context.arena, x.dtype, x.shape);
  inner_->forward(context, parts_.of(inner_part_, weights), normed, inner, saved.child(inner_part_));
  context.kernels.dropout_add(
      {.x = inner, .residual = x, .out = y, .dropout = dropout_site(context, dropout_name_, dropout_, x.shape)});
}

void Residual::go_back(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const {
  const IntermediateGradient dnormed(pass, kDnormed, dy.dtype, dy.shape);
  through_inner(pass, dy, dnormed);
  through_norm(pass, dnormed, dy, dx);
}

// Without dropout the inner layer's output gradient is dy itself.
void Residual::through_inner(const BackwardPass& pass, ConstTensorView dy, TensorView dnormed) const {
  const kernels::DropoutSite site = dropout_site(pass.context(), dropout_name_, dropout_, dy.shape);
  if (site.rate == 0) return pass.through(*inner_, parts_, inner_part_, dy, dnormed);
  const IntermediateGradient dinner(pass, kDinner, dy.dtype, dy.shape);
  pass.context().kernels.dropout_backward({.dy = dy, .dx = dinner, .dropout = site});
  pass.through(*inner_, parts_, inner_part_, dinner, dnormed);
}

// dx = dy + norm's part, rounded once.
void Residual::through_norm(const BackwardPass& pass, ConstTensorView dnormed, ConstTensorView dy, TensorView dx) const {
  Context& context = pass.context();
  Saved& saved = pass.saved().child(norm_part_);
  if (!dx.absent()) context.kernels.copy(dy, dx);
  norm_->backward_input(context, parts_.of(norm_part_, pass.weights()), dnormed, dx, saved, true);
  if (pass.fused()) norm_->backward_weight(context, parts_.of(norm_part_, pass.gradients()), saved);
}

void Residual::backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const {
  go_back(BackwardPass(context, weights, saved), dy, dx);
}

void Residual::backward(Context& context, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                        Saved& saved) const {
  go_back(BackwardPass(context, weights, gradients, saved), dy, dx);
}

void Residual::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  inner_->backward_weight(context, parts_.of(inner_part_, gradients), saved.child(inner_part_));
  norm_->backward_weight(context, parts_.of(norm_part_, gradients), saved.child(norm_part_));
}

}  // namespace trivet::model
