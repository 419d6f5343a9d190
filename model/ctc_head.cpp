#include "model/ctc_head.h"

#include "kernels/kernels.h"

namespace trivet::model {
namespace {

ScopedTensor scratch_of(const Context& context, ConstTensorView logits) {
  return {context.arena, DType::UInt8, {kernels::CtcScratch(logits, context.microbatch->targets).bytes}};
}

}  // namespace

void CtcHead::forward(Context& context, Weights, ConstTensorView x, TensorView, Saved& saved) const {
  saved.reference(kX, x);
  const ScopedTensor scratch = scratch_of(context, x);
  context.kernels.ctc({.logits = x,
                       .targets = context.microbatch->targets,
                       .loss = context.loss,
                       .correct = context.correct,
                       .scratch = scratch});
  if (context.logits) context.logits->read(context.kernels, *context.microbatch, 0, x);
}

void CtcHead::backward_input(Context& context, Weights, ConstTensorView, TensorView dx, Saved& saved) const {
  if (dx.absent()) return;
  const ScopedTensor scratch = scratch_of(context, saved[kX]);
  context.kernels.ctc({.logits = saved[kX],
                       .targets = context.microbatch->targets,
                       .dlogits = dx,
                       .gradient_scale = context.gradient_scale,
                       .scratch = scratch});
}

void CtcHead::forward_backward(Context& context, Weights, Gradients, ConstTensorView x, TensorView dx, Saved&) const {
  const ScopedTensor scratch = scratch_of(context, x);
  context.kernels.ctc({.logits = x,
                       .targets = context.microbatch->targets,
                       .dlogits = dx,
                       .gradient_scale = context.gradient_scale,
                       .loss = context.loss,
                       .correct = context.correct,
                       .scratch = scratch});
}

}  // namespace trivet::model
