#include "model/pointwise.h"

#include "kernels/kernels.h"
#include "model/sub_layers.h"

namespace trivet::model {

void PointwiseLayer::forward(Context& context, Weights, ConstTensorView x, TensorView y, Saved& saved) const {
  saved.reference(kX, x);
  if (function_ == Pointwise::Relu)
    context.kernels.relu({.x = x, .y = y});
  else
    context.kernels.gelu({.x = x, .y = y});
}

void PointwiseLayer::backward_input(Context& context, Weights, ConstTensorView dy, TensorView dx, Saved& saved) const {
  if (dx.absent()) return;
  if (function_ == Pointwise::Relu)
    context.kernels.relu_backward({.dy = dy, .x = saved[kX], .dx = dx});
  else
    context.kernels.gelu_backward({.dy = dy, .x = saved[kX], .dx = dx});
}

void Dropout::forward(Context& context, Weights, ConstTensorView x, TensorView y, Saved&) const {
  context.kernels.dropout_add({.x = x, .out = y, .dropout = dropout_site(context, name_, rate_)});
}

void Dropout::backward_input(Context& context, Weights, ConstTensorView dy, TensorView dx, Saved&) const {
  if (dx.absent()) return;
  context.kernels.dropout_backward({.dy = dy, .dx = dx, .dropout = dropout_site(context, name_, rate_)});
}

void Flatten::forward(Context& context, Weights, ConstTensorView x, TensorView y, Saved&) const { context.kernels.copy(x, y); }

void Flatten::backward_input(Context& context, Weights, ConstTensorView dy, TensorView dx, Saved&) const {
  if (!dx.absent()) context.kernels.copy(dy, dx);
}

}  // namespace trivet::model
