#include "model/linear.h"

#include "kernels/kernels.h"
#include "model/sub_layers.h"
#include "tensor_parallel/token_gather.h"

namespace trivet::model {

using tensor_parallel::AxisCuts;
using tensor_parallel::AxisSum;
using tensor_parallel::split_axis;
using tensor_parallel::TokenGather;
namespace {

template <typename View>
View rows_or_absent(View view) {
  return view.absent() ? view : as_rows(view);
}

ParameterSpec weight_spec(const Linear::Options& options) {
  return {.name = "weight",
          .shape = {options.out, options.in},
          .init = options.init_bound > 0 ? Init{Init::Kind::Uniform, options.init_bound}
                                         : Init{Init::Kind::Normal, options.init_deviation},
          .split = options.split};
}

}  // namespace

Linear::Linear(const Options& options) : options_(options), adapters_(options.adapters, weight_spec(options)) {
  const bool uniform = options.init_bound > 0;
  parameters_.push_back(weight_spec(options));
  if (options.bias)
    parameters_.push_back({.name = "bias",
                           .shape = {options.out},
                           .init = uniform ? Init{Init::Kind::Uniform, options.init_bound} : Init{Init::Kind::Zeros, 0},
                           .split = options.split.dim == 0 ? options.split : Split{},
                           .decay = false});
  parameters_.insert(parameters_.end(), adapters_.parameters().begin(), adapters_.parameters().end());
}

Shape Linear::output_shape(const Shape& input) const {
  Shape output = input;
  output[-1] = options_.out;
  return output;
}

void Linear::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  forward_with_gelu(context, weights, x, y, {}, saved);
}

void Linear::forward_with_gelu(Context& context, Weights weights, ConstTensorView x, TensorView y, TensorView activated,
                               Saved& saved) const {
  saved.reference(kX, x);
  const AxisCuts cuts(context, options_.split);
  TokenGather all_x(context, x, column_parallel());
  AxisSum sum(context, row_parallel() ? split_axis(context) : nullptr, y, options_.bias ? weights[1] : ConstTensorView{});
  context.kernels.matmul({.a = as_rows(all_x.view()),
                          .b = weights[0],
                          .out = as_rows(sum.partial()),
                          .transpose_b = true,
                          .bias = sum.partial_bias(),
                          .cuts = row_parallel() ? cuts.sums() : cuts.cols(),
                          .activated = adapted() ? TensorView{} : rows_or_absent(activated)});
  sum.start();
  sum.finish();
  if (!adapted()) return;
  adapters_.forward(context, weights.subspan(own_parameters()), all_x.view(), y, saved.child(kAdapters));
  if (!activated.absent()) context.kernels.gelu({.x = as_rows(y), .y = as_rows(activated)});
}

void Linear::keep_again(Context& context, Weights weights, ConstTensorView x, const Shape& y, Saved& saved) const {
  saved.reference(kX, x);
  if (!adapted()) return;
  TokenGather all_x(context, x, column_parallel());
  adapters_.keep_low(context, weights.subspan(own_parameters()), all_x.view(), y, saved.child(kAdapters));
}

void Linear::renew_input(ConstTensorView x, Saved& saved) const { saved.reference(kX, x); }

// dx[T, in] = dy[T, out] W[out, in]
AxisSum Linear::start_input_gradient(Context& context, Weights weights, ConstTensorView dy, ConstTensorView before_gelu,
                                     TensorView dx) const {
  const AxisCuts cuts(context, options_.split);
  AxisSum sum(context, column_parallel() && !dx.absent() ? split_axis(context) : nullptr, dx);
  if (dx.absent()) return sum;
  context.kernels.matmul({.a = as_rows(dy),
                          .b = weights[0],
                          .out = as_rows(sum.partial()),
                          .cuts = column_parallel() ? cuts.sums() : cuts.cols(),
                          .before_gelu = adapted() ? ConstTensorView{} : rows_or_absent(before_gelu)});
  sum.start();
  return sum;
}

void Linear::add_adapted(Context& context, Weights weights, ConstTensorView dy, ConstTensorView before_gelu, TensorView dx,
                         Saved& saved) const {
  if (!adapted()) return;
  adapters_.backward_input(context, weights.subspan(own_parameters()), dy, saved[kX].shape, dx, saved.child(kAdapters));
  if (!before_gelu.absent() && !dx.absent())
    context.kernels.gelu_backward({.dy = as_rows(dx), .x = as_rows(before_gelu), .dx = as_rows(dx)});
}

void Linear::backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const {
  backward_input_with_gelu(context, weights, dy, {}, dx, saved);
}

void Linear::backward_input_with_gelu(Context& context, Weights weights, ConstTensorView dy, ConstTensorView before,
                                      TensorView dx, Saved& saved) const {
  saved.reference(kDy, dy);
  TokenGather all_dy(context, dy, row_parallel());
  start_input_gradient(context, weights, all_dy.view(), before, dx).finish();
  add_adapted(context, weights, all_dy.view(), before, dx, saved);
}

void Linear::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  const bool wanted = !gradients[0].view.absent();
  TokenGather all_x(context, saved[kX], wanted && column_parallel()), all_dy(context, saved[kDy], wanted && row_parallel());
  make_weight_gradients(context, gradients.first(own_parameters()), all_x.view(), all_dy.view(), saved);
  if (adapted())
    adapters_.backward_weight(context, gradients.subspan(own_parameters()), saved[kX], saved[kDy], saved.child(kAdapters));
}

void Linear::backward(Context& context, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                      Saved& saved) const {
  backward_with_gelu(context, weights, gradients, dy, {}, dx, saved);
}

// x is gathered while dx is computed, and dx is summed while the gradient of W is computed.
void Linear::backward_with_gelu(Context& context, Weights weights, Gradients gradients, ConstTensorView dy,
                                ConstTensorView before, TensorView dx, Saved& saved) const {
  saved.reference(kDy, dy);
  const bool wanted = !gradients[0].view.absent();
  TokenGather all_dy(context, dy, row_parallel()), all_x(context, saved[kX], wanted && column_parallel());
  AxisSum sum = start_input_gradient(context, weights, all_dy.view(), before, dx);
  make_weight_gradients(context, gradients.first(own_parameters()), all_x.view(), all_dy.view(), saved);
  sum.finish();
  if (!adapted()) return;
  add_adapted(context, weights, all_dy.view(), before, dx, saved);
  adapters_.backward_weight(context, gradients.subspan(own_parameters()), saved[kX], saved[kDy], saved.child(kAdapters));
}

// dW[out, in] += dy^T[out, T] x[T, in]. The gradient of an unsplit bias is the sum over the rank's own tokens.
void Linear::make_weight_gradients(Context& context, Gradients gradients, ConstTensorView x, ConstTensorView dy,
                                   const Saved& saved) const {
  const AxisCuts cuts(context, options_.split);
  const Gradient& dweight = gradients[0];
  if (!dweight.view.absent())
    context.kernels.matmul({.a = as_rows(dy),
                            .b = as_rows(x),
                            .out = dweight.view,
                            .transpose_a = true,
                            .accumulate = dweight.accumulate,
                            .cuts = column_parallel() ? cuts.rows() : cuts.cols()});
  if (options_.bias && !gradients[1].view.absent())
    context.kernels.bias_gradient(
        {.dy = as_rows(saved[kDy]), .dbias = gradients[1].view, .accumulate = gradients[1].accumulate});
}

}  // namespace trivet::model
