#include "model/expert_work.h"

#include "kernels/kernels.h"

namespace trivet::model {

using tensor_parallel::AxisCuts;
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

}  // namespace

Split split_of_gate_up(int64_t feed_forward) { return {0, {feed_forward, feed_forward}, {}}; }
Split split_of_down(int64_t feed_forward) { return {1, {feed_forward}, {}}; }

ExpertWork::ExpertWork(Context& context, const Weights& weights, int64_t feed_forward, const kernels::SwiGluRule& rule)
    : context_(context),
      gate_up_(of_each(weights.gate_up, weights.down.shape[0] / weights.gate_up.shape[1])),
      down_(of_each(weights.down, gate_up_.shape[0])),
      rule_(rule),
      of_gate_up_(context, split_of_gate_up(feed_forward)),
      of_down_(context, split_of_down(feed_forward)) {
  if (!weights.gate_up_bias.absent()) gate_up_bias_ = weights.gate_up_bias.reshaped({gate_up_.shape[0], gate_up_.shape[1]});
}

void ExpertWork::activate(const ExpertRows& rows, TensorView wide, TensorView activated) const {
  context_.kernels.grouped_matmul(
      {.a = rows.x, .b = gate_up_, .ends = rows.ends, .out = wide, .transpose_b = true, .cuts = of_gate_up_.cols()});
  if (!gate_up_bias_.absent()) context_.kernels.add_expert_bias({.bias = gate_up_bias_, .ends = rows.ends, .out = wide});
  context_.kernels.weighted_swiglu(
      {.gate_up = wide, .weights = rows.weights, .order = rows.order, .y = activated, .rule = rule_});
}

void ExpertWork::apply_down(ConstTensorView activated, ConstTensorView ends, TensorView out) const {
  context_.kernels.grouped_matmul(
      {.a = activated, .b = down_, .ends = ends, .out = out, .transpose_b = true, .cuts = of_down_.sums()});
}

void ExpertWork::backward(const ExpertRows& rows, ConstTensorView dy, ConstTensorView wide, TensorView scratch,
                          TensorView dwide, TensorView dweights) const {
  context_.kernels.grouped_matmul({.a = dy, .b = down_, .ends = rows.ends, .out = scratch, .cuts = of_down_.cols()});
  context_.kernels.weighted_swiglu_backward({.dy = scratch,
                                             .gate_up = wide,
                                             .weights = rows.weights,
                                             .order = rows.order,
                                             .dgate_up = dwide,
                                             .dweights = dweights,
                                             .ends = {of_down_.ends().begin(), of_down_.ends().end()},
                                             .rule = rule_});
}

void ExpertWork::backward_input(ConstTensorView dwide, ConstTensorView ends, TensorView dx) const {
  context_.kernels.grouped_matmul({.a = dwide, .b = gate_up_, .ends = ends, .out = dx, .cuts = of_gate_up_.sums()});
}

void make_gate_up_gradient(Context& context, const Gradient& gradient, int64_t experts, int64_t feed_forward,
                           const ExpertRows& rows, ConstTensorView dwide) {
  if (gradient.view.absent()) return;
  const AxisCuts cuts(context, split_of_gate_up(feed_forward));
  context.kernels.grouped_gradient({.a = dwide,
                                    .b = rows.x,
                                    .ends = rows.ends,
                                    .leaves = rows.leaves,
                                    .out = of_each(gradient.view, experts),
                                    .accumulate = gradient.accumulate,
                                    .cuts = with_leaves(context, cuts.rows())});
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
  if (gradient.view.absent()) return;
  const AxisCuts cuts(context, split_of_down(feed_forward));
  context.kernels.grouped_gradient({.a = dy,
                                    .b = activated,
                                    .ends = rows.ends,
                                    .leaves = rows.leaves,
                                    .out = of_each(gradient.view, experts),
                                    .accumulate = gradient.accumulate,
                                    .cuts = with_leaves(context, cuts.cols())});
}

}  // namespace trivet::model
