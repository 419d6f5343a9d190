#include "model/expert_work.h"

#include "kernels/kernels.h"

namespace trivet::model {

using tensor_parallel::AxisCuts;
using tensor_parallel::split_axis;
namespace {

// Where sums over tokens are cut into leaves, a rank's only leaf must be summed like one of several (kernels/experts.h).
const kernels::ProductCuts* with_leaves(const Context& context, const kernels::ProductCuts* cuts) {
  static const kernels::ProductCuts none;
  return cuts || !context.leaves ? cuts : &none;
}

template <typename View>
View of_each(const View& weights, int64_t experts) {
  return weights.reshaped({experts, weights.shape[0] / experts, weights.shape[1]});
}

// The sum over rows of dy^T x for each expert.
struct RowProducts {
  ConstTensorView dy, x;
  const kernels::ProductCuts* cuts;
};

void make_gradient(Context& context, const Gradient& gradient, int64_t experts, const ExpertRows& rows,
                   const RowProducts& products) {
  if (gradient.view.absent()) return;
  context.kernels.grouped_gradient({.a = products.dy,
                                    .b = products.x,
                                    .ends = rows.ends,
                                    .leaves = rows.leaves,
                                    .out = of_each(gradient.view, experts),
                                    .accumulate = gradient.accumulate,
                                    .cuts = with_leaves(context, products.cuts)});
}

}  // namespace

Split split_of_gate_up(int64_t feed_forward) { return {0, {feed_forward, feed_forward}, {}}; }
Split split_of_down(int64_t feed_forward) { return {1, {feed_forward}, {}}; }

ExpertWork::ExpertWork(Context& context, const Weights& weights, int64_t feed_forward, const kernels::SwiGluRule& rule)
    : context_(context),
      gate_up_(of_each(weights.gate_up, weights.down.shape[0] / weights.gate_up.shape[1])),
      down_(of_each(weights.down, gate_up_.shape[0])),
      gate_up_adapter_(weights.gate_up_adapter),
      down_adapter_(weights.down_adapter),
      rule_(rule),
      of_gate_up_(context, split_of_gate_up(feed_forward)),
      of_down_(context, split_of_down(feed_forward)) {
  if (!weights.gate_up_bias.absent()) gate_up_bias_ = weights.gate_up_bias.reshaped({gate_up_.shape[0], gate_up_.shape[1]});
}

void ExpertWork::activate(const ExpertRows& rows, TensorView wide, TensorView activated, const LowRows& low) const {
  context_.kernels.grouped_matmul(
      {.a = rows.x, .b = gate_up_, .ends = rows.ends, .out = wide, .transpose_b = true, .cuts = of_gate_up_.cols()});
  if (gate_up_adapter_.exists()) {
    make_low({.x = rows.x, .matrix = gate_up_adapter_.a, .transpose = true, .scale = gate_up_adapter_.scale}, rows.ends,
             low.gate_up);
    context_.kernels.grouped_matmul({.a = low.gate_up.row_range(0, wide.shape[0]),
                                     .b = of_experts(gate_up_adapter_.b),
                                     .ends = rows.ends,
                                     .out = wide,
                                     .transpose_b = true,
                                     .accumulate = true,
                                     .cuts = of_gate_up_.cols()});
  }
  if (!gate_up_bias_.absent()) context_.kernels.add_expert_bias({.bias = gate_up_bias_, .ends = rows.ends, .out = wide});
  context_.kernels.weighted_swiglu(
      {.gate_up = wide, .weights = rows.weights, .order = rows.order, .y = activated, .rule = rule_});
  if (down_adapter_.exists())
    make_low({.x = activated,
              .matrix = down_adapter_.a,
              .transpose = true,
              .is_sum = true,
              .cuts = of_down_.sums(),
              .scale = down_adapter_.scale},
             rows.ends, low.down);
}

ConstTensorView ExpertWork::of_experts(ConstTensorView matrix) const { return of_each(matrix, gate_up_.shape[0]); }

void ExpertWork::make_low(const LowProduct& product, ConstTensorView ends, TensorView low) const {
  const comm::RankAxis* const axis = product.is_sum ? split_axis(context_) : nullptr;
  const int64_t rows = product.x.shape[0];
  tensor_parallel::AxisSum sum(context_, axis, low);
  if (axis && rows < low.shape[0]) context_.kernels.zero(sum.partial());
  context_.kernels.grouped_matmul({.a = product.x,
                                   .b = of_experts(product.matrix),
                                   .ends = ends,
                                   .out = sum.partial().row_range(0, rows),
                                   .transpose_b = product.transpose,
                                   .cuts = product.cuts});
  sum.start();
  sum.finish();
  context_.kernels.scale(low.row_range(0, rows), product.scale);
}

void ExpertWork::apply_down(ConstTensorView activated, ConstTensorView ends, TensorView out) const {
  context_.kernels.grouped_matmul(
      {.a = activated, .b = down_, .ends = ends, .out = out, .transpose_b = true, .cuts = of_down_.sums()});
}

void ExpertWork::apply_down_adapter(ConstTensorView low, ConstTensorView ends, TensorView out) const {
  context_.kernels.grouped_matmul(
      {.a = low.row_range(0, out.shape[0]), .b = of_experts(down_adapter_.b), .ends = ends, .out = out, .transpose_b = true});
}

void ExpertWork::begin_backward(ConstTensorView dy, ConstTensorView ends, const LowRows& dlow) const {
  if (down_adapter_.exists()) make_low({.x = dy, .matrix = down_adapter_.b, .scale = down_adapter_.scale}, ends, dlow.down);
}

void ExpertWork::backward(const ExpertRows& rows, ConstTensorView dy, ConstTensorView wide, TensorView scratch,
                          TensorView dwide, TensorView dweights, const LowRows& dlow) const {
  context_.kernels.grouped_matmul({.a = dy, .b = down_, .ends = rows.ends, .out = scratch, .cuts = of_down_.cols()});
  if (down_adapter_.exists())
    context_.kernels.grouped_matmul({.a = dlow.down.row_range(0, dy.shape[0]),
                                     .b = of_experts(down_adapter_.a),
                                     .ends = rows.ends,
                                     .out = scratch,
                                     .accumulate = true,
                                     .cuts = of_down_.cols()});
  context_.kernels.weighted_swiglu_backward({.dy = scratch,
                                             .gate_up = wide,
                                             .weights = rows.weights,
                                             .order = rows.order,
                                             .dgate_up = dwide,
                                             .dweights = dweights,
                                             .ends = {of_down_.ends().begin(), of_down_.ends().end()},
                                             .rule = rule_});
  if (gate_up_adapter_.exists())
    make_low(
        {.x = dwide, .matrix = gate_up_adapter_.b, .is_sum = true, .cuts = of_gate_up_.sums(), .scale = gate_up_adapter_.scale},
        rows.ends, dlow.gate_up);
}

void ExpertWork::backward_input_adapter(ConstTensorView dlow, ConstTensorView ends, TensorView dx) const {
  context_.kernels.grouped_matmul(
      {.a = dlow.row_range(0, dx.shape[0]), .b = of_experts(gate_up_adapter_.a), .ends = ends, .out = dx});
}

void ExpertWork::backward_input(ConstTensorView dwide, ConstTensorView ends, TensorView dx) const {
  context_.kernels.grouped_matmul({.a = dwide, .b = gate_up_, .ends = ends, .out = dx, .cuts = of_gate_up_.sums()});
}

void make_gate_up_gradient(Context& context, const Gradient& gradient, int64_t experts, int64_t feed_forward,
                           const ExpertRows& rows, ConstTensorView dwide) {
  const AxisCuts cuts(context, split_of_gate_up(feed_forward));
  make_gradient(context, gradient, experts, rows, {dwide, rows.x, cuts.rows()});
}

ScopedTensor ones_of_rows(Context& context, DType dtype, int64_t rows) {
  ScopedTensor ones(context.arena, dtype, {rows, 1});
  context.kernels.initialize(ones, {Init::Kind::Ones, 0}, 0, 0);
  return ones;
}

void make_gate_up_bias_gradient(Context& context, const Gradient& gradient, int64_t experts, const ExpertRows& rows,
                                ConstTensorView dwide, ConstTensorView ones) {
  if (gradient.view.absent()) return;
  static const kernels::ProductCuts none;
  context.kernels.grouped_gradient({.a = dwide,
                                    .b = ones,
                                    .ends = rows.ends,
                                    .leaves = rows.leaves,
                                    .out = gradient.view.reshaped({experts, dwide.shape[1], 1}),
                                    .accumulate = gradient.accumulate,
                                    .cuts = &none});
}

void make_down_gradient(Context& context, const Gradient& gradient, int64_t experts, int64_t feed_forward,
                        const ExpertRows& rows, ConstTensorView dy, ConstTensorView activated) {
  const AxisCuts cuts(context, split_of_down(feed_forward));
  make_gradient(context, gradient, experts, rows, {dy, activated, cuts.cols()});
}

void make_gate_up_adapter_gradients(Context& context, const AdapterGradients& gradients, int64_t experts, int64_t feed_forward,
                                    const ExpertRows& rows, ConstTensorView dwide, ConstTensorView low, ConstTensorView dlow) {
  const AxisCuts cuts(context, split_of_gate_up(feed_forward));
  const int64_t count = dwide.shape[0];
  make_gradient(context, gradients.a, experts, rows, {dlow.row_range(0, count), rows.x, nullptr});
  make_gradient(context, gradients.b, experts, rows, {dwide, low.row_range(0, count), cuts.rows()});
}

void make_down_adapter_gradients(Context& context, const AdapterGradients& gradients, int64_t experts, int64_t feed_forward,
                                 const ExpertRows& rows, ConstTensorView dy, ConstTensorView activated, ConstTensorView low,
                                 ConstTensorView dlow) {
  const AxisCuts cuts(context, split_of_down(feed_forward));
  const int64_t count = dy.shape[0];
  make_gradient(context, gradients.a, experts, rows, {dlow.row_range(0, count), activated, cuts.cols()});
  make_gradient(context, gradients.b, experts, rows, {dy, low.row_range(0, count), nullptr});
}

}  // namespace trivet::model
