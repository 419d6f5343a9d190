#include "model/qk_norm.h"

#include "kernels/kernels.h"
#include "kernels/leaf_sum.h"
#include "model/head_sum.h"
#include "model/qkv_projection.h"
#include "model/sub_layers.h"
#include "tensor_parallel/axis_sum.h"

namespace trivet::model {

using tensor_parallel::AxisCuts;
using tensor_parallel::split_axis;
namespace {

// gradient (+)= sum
void store_rounded_once(Context& context, ConstTensorView sum, const Gradient& gradient) {
  const Shape row{1, sum.elements()};
  ScopedTensor before;
  if (gradient.accumulate) {
    before = ScopedTensor(context.arena, gradient.view.dtype, {sum.elements()});
    context.kernels.copy(gradient.view, before);
  }
  context.kernels.add_bias({.x = sum.reshaped(row),
                            .bias = gradient.accumulate ? ConstTensorView(before.view()) : ConstTensorView{},
                            .out = gradient.view.reshaped(row)});
}

}  // namespace

QkNorm::QkNorm(const Options& options) : options_(options) {
  for (const char* name : {"query_norm.gain", "key_norm.gain"})
    parameters_.push_back({.name = name, .shape = {options.head_size}, .init = {Init::Kind::Ones, 0}, .decay = false});
}

void QkNorm::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  const HeadRange heads = head_range(options_.heads, options_.key_value_heads, split_axis(context));
  saved.reference(kX, x);
  const TensorView rstd = saved.keep(context.arena, kRstd, statistics_dtype(x.dtype),
                                     {x.shape[0], x.shape[1], heads.count + heads.key_value_count});
  context.kernels.head_norm({.qkv = x,
                             .query_gain = weights[0],
                             .key_gain = weights[1],
                             .out = y,
                             .rstd = rstd,
                             .heads = heads.count,
                             .key_value_heads = heads.key_value_count,
                             .epsilon = static_cast<float>(options_.epsilon)});
}

void QkNorm::backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const {
  const HeadRange heads = head_range(options_.heads, options_.key_value_heads, split_axis(context));
  saved.reference(kDy, dy);
  context.kernels.head_norm_backward_input({.dout = dy,
                                            .qkv = saved[kX],
                                            .query_gain = weights[0],
                                            .key_gain = weights[1],
                                            .rstd = saved[kRstd],
                                            .dqkv = dx,
                                            .heads = heads.count,
                                            .key_value_heads = heads.key_value_count});
}

// [Note: gradients of gains that all heads share]
void QkNorm::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  if (gradients[0].view.absent() && gradients[1].view.absent()) return;
  const DType dtype = statistics_dtype(saved[kDy].dtype);
  const ScopedTensor sums(context.arena, dtype, {2, options_.head_size});  // rows: queries, keys
  if (context.leaves) {
    kernels::LeafSum tree(context.kernels, context.arena, dtype, sums.view().shape);
    for (const auto& ranges : context.leaves->ranges) {
      sum_over_tokens_and_heads(context, saved, ranges, tree.begin_leaf());
      tree.end_leaf();
    }
    tree.store(sums, false);
  } else {
    const int64_t all = saved[kDy].shape[0] * saved[kDy].shape[1];
    sum_over_tokens_and_heads(context, saved, {{{0, all}}}, sums);
  }
  for (size_t i = 0; i < 2; ++i) {
    if (gradients[i].view.absent()) continue;
    store_rounded_once(context, sums.view().row_range(static_cast<int64_t>(i), 1), gradients[i]);
  }
}

// sums[2, D] = the sums over the rows of tokens in `ranges` and over the heads, of all tensor ranks, of queries and of keys.
void QkNorm::sum_over_tokens_and_heads(Context& context, const Saved& saved, const std::vector<TokenLeaves::Range>& ranges,
                                       TensorView sums) const {
  const comm::RankAxis* axis = split_axis(context);
  const HeadRange heads = head_range(options_.heads, options_.key_value_heads, axis);
  const ConstTensorView dy = as_rows(saved[kDy]), x = as_rows(saved[kX]);
  const int64_t size = options_.head_size, all = heads.count + heads.key_value_count;
  const ScopedTensor parts(context.arena, sums.dtype, {all, size});
  const ConstTensorView rstd = as_rows(saved[kRstd]);
  ScopedTensor next;
  for (const TokenLeaves::Range& range : ranges) {
    const int64_t count = range.end - range.begin;
    const bool first = &range == &ranges.front();
    if (!first && next.empty()) next = ScopedTensor(context.arena, sums.dtype, {all, size});
    const auto rows = [&](ConstTensorView view) {
      return view.row_range(range.begin, count).reshaped({1, count, view.shape.cols()});
    };
    context.kernels.head_norm_backward_weight({.dout = rows(dy),
                                               .qkv = rows(x),
                                               .rstd = rstd.row_range(range.begin, count),
                                               .dgains = first ? parts.view() : next.view(),
                                               .heads = heads.count,
                                               .key_value_heads = heads.key_value_count});
    if (!first) context.kernels.add(next, parts);
  }
  const ConstTensorView of_gain[] = {parts.view().row_range(0, heads.count),
                                     parts.view().row_range(heads.count, heads.key_value_count)};
  const int64_t all_heads[] = {options_.heads, options_.key_value_heads};
  for (size_t i = 0; i < 2; ++i) {
    const AxisCuts cuts(context, {0, {all_heads[i]}, {}});
    const ScopedTensor of_heads = sum_over_heads(context, of_gain[i], cuts.ends());
    const TensorView sum = sums.slice(static_cast<int64_t>(i) * size, size);
    context.kernels.copy(of_heads.view().slice(0, size), sum);
    if (axis && !axis->splits_tokens) tensor_parallel::sum_over(*axis, sum);
  }
}

}  // namespace trivet::model
