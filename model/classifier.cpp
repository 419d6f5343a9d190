#include "model/classifier.h"

#include "kernels/kernels.h"

namespace trivet::model {
namespace {

ConstTensorView classes_of(const Context& context) {
  const ConstTensorView targets = context.microbatch->targets;
  return targets.reshaped({targets.elements()});
}

void count_correct(Context& context, ConstTensorView logits) {
  if (context.correct.absent()) return;
  context.kernels.count_correct({.logits = logits, .targets = classes_of(context), .correct = context.correct});
}

}  // namespace

void Classifier::forward(Context& context, Weights, ConstTensorView x, TensorView, Saved& saved) const {
  saved.reference(kX, x);
  context.kernels.cross_entropy({.logits = x, .targets = classes_of(context), .loss = context.loss});
  count_correct(context, x);
}

void Classifier::backward_input(Context& context, Weights, ConstTensorView, TensorView dx, Saved& saved) const {
  if (dx.absent()) return;
  context.kernels.cross_entropy(
      {.logits = saved[kX], .targets = classes_of(context), .dlogits = dx, .gradient_scale = context.gradient_scale});
}

void Classifier::forward_backward(Context& context, Weights, Gradients, ConstTensorView x, TensorView dx, Saved&) const {
  context.kernels.cross_entropy({.logits = x,
                                 .targets = classes_of(context),
                                 .dlogits = dx,
                                 .gradient_scale = context.gradient_scale,
                                 .loss = context.loss});
  count_correct(context, x);
}

}  // namespace trivet::model
