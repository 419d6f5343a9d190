#include "model/expert_mlp.h"

#include <utility>

#include "kernels/kernels.h"
#include "kernels/rules.h"

namespace trivet::model {

using tensor_parallel::AxisCuts;
using tensor_parallel::AxisSum;
using tensor_parallel::split_axis;
namespace {

// One expert's part of F is that of an MLP; all experts together have it E times.
Split of_all(const Split& of_one, int64_t experts) {
  Split split{of_one.dim, {}, {}};
  for (int64_t expert = 0; expert < (of_one.dim == 0 ? experts : 1); ++expert)
    split.segments.insert(split.segments.end(), of_one.segments.begin(), of_one.segments.end());
  return split;
}

ConstTensorView of_each(ConstTensorView weights, int64_t experts) {
  return weights.reshaped({experts, weights.shape[0] / experts, weights.shape[1]});
}
TensorView of_each(TensorView gradients, int64_t experts) {
  return gradients.reshaped({experts, gradients.shape[0] / experts, gradients.shape[1]});
}

// The ranges of tokens that sums over tokens are made of, and how many leaves they form.
struct TokenRanges {
  std::vector<kernels::ProductCuts::Range> ranges;
  int64_t leaves = 1;
};

TokenRanges ranges_of(const Context& context, int64_t tokens) {
  TokenRanges result;
  int64_t covered = 0;
  if (context.leaves)
    for (const auto& leaf : context.leaves->ranges)
      for (const TokenLeaves::Range& range : leaf) {
        result.ranges.push_back({range.begin, range.end});
        covered += range.end - range.begin;
      }
  if (covered != tokens) return {{{0, tokens}}, 1};
  result.leaves = static_cast<int64_t>(context.leaves->ranges.size());
  return result;
}

// Adds up the rows of each token, and over tensor ranks. [Note: when rows are summed]
class RowSum {
 public:
  RowSum(Context& context, int64_t rows, TensorView y)
      : context_(context),
        axis_(split_axis(context)),
        ranks_first_(axis_ && axis_->fixed_sums),
        rows_(context.arena, y.dtype, {rows, y.shape.cols()}),
        over_ranks_(context, ranks_first_ ? axis_ : nullptr, rows_),
        of_tokens_(context, ranks_first_ ? nullptr : axis_, y) {}

  TensorView partial() const { return over_ranks_.partial(); }  // [T K, H]
  void start(ConstTensorView places) {
    over_ranks_.start();
    over_ranks_.finish();
    context_.kernels.combine_rows({.x = rows_, .places = places, .out = as_rows(of_tokens_.partial())});
    of_tokens_.start();
  }
  void finish() { of_tokens_.finish(); }

 private:
  Context& context_;
  const comm::RankAxis* axis_;
  bool ranks_first_;
  ScopedTensor rows_;
  AxisSum over_ranks_, of_tokens_;
};

ScopedTensor gathered(Context& context, ConstTensorView x, ConstTensorView order) {
  ScopedTensor rows(context.arena, x.dtype, {order.elements(), x.shape.cols()});
  context.kernels.gather_rows({.x = as_rows(x), .order = order, .out = rows});
  return rows;
}

}  // namespace

ExpertMlp::ExpertMlp(const Options& options) : options_(options) {
  const int64_t experts = options.experts, hidden = options.hidden, feed_forward = options.feed_forward;
  sub_layers_.add_own(
      {.name = "router.weight", .shape = {experts, hidden}, .init = {Init::Kind::Normal, options.init_deviation}});
  sub_layers_.add_own({.name = "experts.gate_up.weight",
                       .shape = {experts * 2 * feed_forward, hidden},
                       .init = {Init::Kind::Normal, options.init_deviation},
                       .split = of_all(split_of_gate_up(), experts),
                       .matrices = experts,
                       .matrices_per_token = options.chosen});
  sub_layers_.add_own({.name = "experts.down.weight",
                       .shape = {experts * hidden, feed_forward},
                       .init = {Init::Kind::Normal, options.init_deviation_out},
                       .split = of_all(split_of_down(), experts),
                       .matrices = experts,
                       .matrices_per_token = options.chosen});
  if (options.shared_feed_forward == 0) return;
  shared_ = std::make_unique<Mlp>(Mlp::Options{.hidden = hidden,
                                               .feed_forward = options.shared_feed_forward,
                                               .activation = Activation::SwiGlu,
                                               .bias = false,
                                               .init_deviation = options.init_deviation,
                                               .init_deviation_out = options.init_deviation_out});
  shared_index_ = sub_layers_.add("shared", *shared_);
}

Split ExpertMlp::split_of_gate_up() const { return {0, {options_.feed_forward, options_.feed_forward}, {}}; }
Split ExpertMlp::split_of_down() const { return {1, {options_.feed_forward}, {}}; }

void ExpertMlp::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  choose(context, weights, x, saved);
  activate(context, weights, x, saved);
  const AxisCuts cuts(context, split_of_down());
  RowSum sum(context, saved[kOrder].elements(), y);
  context.kernels.grouped_matmul({.a = saved[kActivated],
                                  .b = of_each(weights[kDown], options_.experts),
                                  .ends = saved[kEnds],
                                  .out = sum.partial(),
                                  .transpose_b = true,
                                  .cuts = cuts.sums()});
  sum.start(saved[kPlaces]);
  sum.finish();
  if (shared_) add_shared(context, weights, x, y, saved);
}

void ExpertMlp::forward_again(Context& context, Weights weights, ConstTensorView x, Saved& saved) const {
  choose(context, weights, x, saved);
  activate(context, weights, x, saved);
  if (shared_) shared_->forward_again(context, sub_layers_.of(shared_index_, weights), x, saved.child(shared_index_));
}

void ExpertMlp::choose(Context& context, Weights weights, ConstTensorView x, Saved& saved) const {
  const int64_t tokens = x.shape.rows(), rows = tokens * options_.chosen;
  const DType type = kernels::statistics_type(x.dtype);
  const TokenRanges parts = ranges_of(context, tokens);
  saved.reference(kX, x);
  const TensorView logits = saved.keep(context.arena, kLogits, type, {tokens, options_.experts});
  const TensorView chosen = saved.keep(context.arena, kChosen, DType::Int32, {tokens, options_.chosen});
  const TensorView shares = saved.keep(context.arena, kWeights, type, {tokens, options_.chosen});
  const TensorView order = saved.keep(context.arena, kOrder, DType::Int32, {rows});
  const TensorView places = saved.keep(context.arena, kPlaces, DType::Int32, {tokens, options_.chosen});
  const TensorView ends =
      saved.keep(context.arena, kEnds, DType::Int32, {options_.experts, static_cast<int64_t>(parts.ranges.size())});
  context.kernels.matmul({.a = as_rows(x), .b = weights[kRouter], .out = logits, .transpose_b = true});
  context.kernels.choose_experts({.logits = logits, .bias = {}, .chosen = chosen, .weights = shares, .rule = options_.rule});
  context.kernels.order_by_expert({.chosen = chosen, .order = order, .places = places, .ends = ends, .ranges = parts.ranges});
  if (!context.expert_tokens.absent())
    context.kernels.count_rows({.ends = ends, .counts = context.expert_tokens, .accumulate = true});
}

// Everything up to the input of down.
void ExpertMlp::activate(Context& context, Weights weights, ConstTensorView x, Saved& saved) const {
  const int64_t rows = saved[kOrder].elements(), width = weights[kDown].shape[1];
  const TensorView wide = saved.keep(context.arena, kWide, x.dtype, {rows, 2 * width});
  const TensorView activated = saved.keep(context.arena, kActivated, x.dtype, {rows, width});
  const AxisCuts cuts(context, split_of_gate_up());
  const ScopedTensor x_rows = gathered(context, x, saved[kOrder]);
  context.kernels.grouped_matmul({.a = x_rows,
                                  .b = of_each(weights[kGateUp], options_.experts),
                                  .ends = saved[kEnds],
                                  .out = wide,
                                  .transpose_b = true,
                                  .cuts = cuts.cols()});
  context.kernels.weighted_swiglu({.gate_up = wide, .weights = saved[kWeights], .order = saved[kOrder], .y = activated});
}

void ExpertMlp::add_shared(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  const ScopedTensor of_shared(context.arena, y.dtype, y.shape);
  shared_->forward(context, sub_layers_.of(shared_index_, weights), x, of_shared, saved.child(shared_index_));
  context.kernels.add(of_shared, y);
}

void ExpertMlp::run_backward(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const {
  Context& context = pass.context();
  Saved& saved = pass.saved();
  const int64_t rows = saved[kOrder].elements(), experts = options_.experts;
  saved.reference(kDy, dy);
  const IntermediateGradient dwide(pass, kDwide, dy.dtype, saved[kWide].shape);
  const IntermediateGradient dlogits(pass, kDlogits, dy.dtype, saved[kLogits].shape);
  const ScopedTensor dweights(context.arena, saved[kWeights].dtype, saved[kWeights].shape);
  {
    const AxisCuts cuts(context, split_of_down());
    const ScopedTensor dy_rows = gathered(context, dy, saved[kOrder]);
    if (pass.fused()) make_down_gradient(context, pass.gradients(), dy_rows, saved);
    pass.done_with(kActivated);
    const ScopedTensor dactivated(context.arena, dy.dtype, {rows, saved[kWide].shape[1] / 2});
    context.kernels.grouped_matmul({.a = dy_rows,
                                    .b = of_each(pass.weights()[kDown], experts),
                                    .ends = saved[kEnds],
                                    .out = dactivated,
                                    .cuts = cuts.cols()});
    context.kernels.weighted_swiglu_backward({.dy = dactivated,
                                              .gate_up = saved[kWide],
                                              .weights = saved[kWeights],
                                              .order = saved[kOrder],
                                              .dgate_up = dwide,
                                              .dweights = dweights,
                                              .ends = {cuts.ends().begin(), cuts.ends().end()}});
    pass.done_with(kWide);
  }
  {
    const AxisCuts cuts(context, split_of_gate_up());
    RowSum sum(context, rows, dx);
    context.kernels.grouped_matmul({.a = dwide,
                                    .b = of_each(pass.weights()[kGateUp], experts),
                                    .ends = saved[kEnds],
                                    .out = sum.partial(),
                                    .cuts = cuts.sums()});
    sum.start(saved[kPlaces]);
    if (pass.fused()) make_gate_up_gradient(context, pass.gradients(), dwide, saved);
    sum.finish();
  }
  through_choice(pass, dweights, dlogits);
  context.kernels.matmul({.a = dlogits, .b = pass.weights()[kRouter], .out = as_rows(dx), .accumulate = true});
  if (pass.fused()) make_router_gradient(context, pass.gradients(), dlogits, saved);
  if (shared_) through_shared(pass, dy, dx);
}

// What chose the experts of a token sees it whole on every tensor rank, but each of these has only a part of its output.
void ExpertMlp::through_choice(const BackwardPass& pass, ConstTensorView dweights, TensorView dlogits) const {
  Context& context = pass.context();
  const Saved& saved = pass.saved();
  TensorView sums{const_cast<void*>(dweights.data), dweights.dtype, dweights.shape};
  if (const comm::RankAxis* axis = split_axis(context)) tensor_parallel::sum_over(*axis, sums);
  const comm::RankAxis* others = context.axes[Axis::Context];
  const ScopedTensor counts(context.arena, DType::Int64, {options_.balance > 0 ? options_.experts : 0});
  if (options_.balance > 0) {
    context.kernels.count_rows({.ends = saved[kEnds], .counts = counts});
    if (others) tensor_parallel::reduce_over(*others, counts);
  }
  context.kernels.choose_experts_backward({.logits = saved[kLogits],
                                           .chosen = saved[kChosen],
                                           .dweights = sums,
                                           .counts = options_.balance > 0 ? ConstTensorView(counts) : ConstTensorView(),
                                           .dlogits = dlogits,
                                           .rule = options_.rule,
                                           .tokens = saved[kLogits].shape[0] * (others ? others->size() : 1),
                                           .balance = options_.balance,
                                           .z_loss = options_.z_loss,
                                           .gradient_scale = context.gradient_scale});
}

void ExpertMlp::through_shared(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const {
  const ScopedTensor of_shared(pass.context().arena, dx.dtype, dx.shape);
  pass.through(*shared_, sub_layers_, shared_index_, dy, of_shared);
  pass.context().kernels.add(of_shared, dx);
}

void ExpertMlp::make_gate_up_gradient(Context& context, Gradients gradients, ConstTensorView dwide, const Saved& saved) const {
  const Gradient& gradient = gradients[kGateUp];
  if (gradient.view.absent()) return;
  const AxisCuts cuts(context, split_of_gate_up());
  const ScopedTensor x_rows = gathered(context, saved[kX], saved[kOrder]);
  context.kernels.grouped_gradient({.a = dwide,
                                    .b = x_rows,
                                    .ends = saved[kEnds],
                                    .leaves = ranges_of(context, saved[kX].shape.rows()).leaves,
                                    .out = of_each(gradient.view, options_.experts),
                                    .accumulate = gradient.accumulate,
                                    .cuts = cuts.rows()});
}

void ExpertMlp::make_down_gradient(Context& context, Gradients gradients, ConstTensorView dy_rows, const Saved& saved) const {
  const Gradient& gradient = gradients[kDown];
  if (gradient.view.absent()) return;
  const AxisCuts cuts(context, split_of_down());
  context.kernels.grouped_gradient({.a = dy_rows,
                                    .b = saved[kActivated],
                                    .ends = saved[kEnds],
                                    .leaves = ranges_of(context, saved[kX].shape.rows()).leaves,
                                    .out = of_each(gradient.view, options_.experts),
                                    .accumulate = gradient.accumulate,
                                    .cuts = cuts.cols()});
}

void ExpertMlp::make_router_gradient(Context& context, Gradients gradients, ConstTensorView dlogits, const Saved& saved) const {
  const Gradient& gradient = gradients[kRouter];
  if (gradient.view.absent()) return;
  context.kernels.matmul(
      {.a = dlogits, .b = as_rows(saved[kX]), .out = gradient.view, .transpose_a = true, .accumulate = gradient.accumulate});
}

void ExpertMlp::backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const {
  run_backward(BackwardPass(context, weights, saved), dy, dx);
}

void ExpertMlp::backward(Context& context, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                         Saved& saved) const {
  run_backward(BackwardPass(context, weights, gradients, saved), dy, dx);
}

void ExpertMlp::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  const ScopedTensor dy_rows = gathered(context, saved[kDy], saved[kOrder]);
  make_down_gradient(context, gradients, dy_rows, saved);
  make_gate_up_gradient(context, gradients, saved[kDwide], saved);
  make_router_gradient(context, gradients, saved[kDlogits], saved);
  if (shared_) shared_->backward_weight(context, sub_layers_.of(shared_index_, gradients), saved.child(shared_index_));
}

}  // namespace trivet::model
