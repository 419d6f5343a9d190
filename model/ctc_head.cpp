#include "model/ctc_head.h"

#include "kernels/kernels.h"

namespace trivet::model {

void CtcHead::forward(Context& context, Weights, ConstTensorView x, TensorView, Saved& saved) const {
  saved.reference(kX, x);
  context.kernels.ctc({.logits = x, .targets = context.microbatch->targets, .loss = context.loss, .correct = context.correct});
  if (context.logits) context.logits->read(context.kernels, *context.microbatch, 0, x);
}

void CtcHead::backward_input(Context& context, Weights, ConstTensorView, TensorView dx, Saved& saved) const {
  if (dx.absent()) return;
  context.kernels.ctc(
      {.logits = saved[kX], .targets = context.microbatch->targets, .dlogits = dx, .gradient_scale = context.gradient_scale});
}

void CtcHead::forward_backward(Context& context, Weights, Gradients, ConstTensorView x, TensorView dx, Saved&) const {
  context.kernels.ctc({.logits = x,
                       .targets = context.microbatch->targets,
                       .dlogits = dx,
                       .gradient_scale = context.gradient_scale,
                       .loss = context.loss,
                       .correct = context.correct});
}

}  // namespace trivet::model
