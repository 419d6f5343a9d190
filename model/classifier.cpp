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

// A row for each sample.
void show_logits(Context& context, ConstTensorView logits) {
  if (!context.logits) return;
  const ConstTensorView rows = logits.reshaped({logits.shape[0], 1, logits.shape[1]});
  context.logits->read(context.kernels, *context.microbatch, 0, rows);
}

}  // namespace

void Classifier::forward(Context& context, Weights, ConstTensorView x, TensorView, Saved& saved) const {
  saved.reference(kX, x);
  context.kernels.cross_entropy({.logits = x, .targets = classes_of(context), .loss = context.loss});
  count_correct(context, x);
  show_logits(context, x);
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
