#include "model/linear.h"

#include "model/parts.h"

namespace trivet::model {
namespace {

enum Slot { kX, kDy };

}  // namespace

Linear::Linear(const Options& options) : options_(options) {
  parameters_.push_back({.name = "weight",
                         .shape = {options.out, options.in},
                         .init = {Init::Kind::Normal, options.init_deviation},
                         .split = options.split});
  if (options.bias)
    parameters_.push_back({.name = "bias",
                           .shape = {options.out},
                           .init = {Init::Kind::Zeros, 0},
                           .split = options.split.dim == 0 ? options.split : Split{},
                           .decay = false});
}

Shape Linear::output_shape(const Shape& input) const {
  Shape output = input;
  output[-1] = options_.out;
  return output;
}

void Linear::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  saved.reference(kX, x);
  context.kernels.matmul({.a = as_rows(x),
                          .b = weights[0],
                          .out = as_rows(y),
                          .transpose_b = true,
                          .bias = options_.bias ? weights[1] : ConstTensorView{}});
}

// dx[T, in] = dy[T, out] W[out, in]
void Linear::backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const {
  saved.reference(kDy, dy);
  if (dx.absent()) return;
  context.kernels.matmul({.a = as_rows(dy), .b = weights[0], .out = as_rows(dx)});
}

// dW[out, in] += dy^T[out, T] x[T, in]
void Linear::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  const ConstTensorView x = as_rows(saved[kX]), dy = as_rows(saved[kDy]);
  const Gradient& dweight = gradients[0];
  if (!dweight.view.absent())
    context.kernels.matmul({.a = dy, .b = x, .out = dweight.view, .transpose_a = true, .accumulate = dweight.accumulate});
  if (options_.bias && !gradients[1].view.absent())
    context.kernels.bias_gradient({.dy = dy, .dbias = gradients[1].view, .accumulate = gradients[1].accumulate});
}

}  // namespace trivet::model
