#include "model/latent_qkv.h"

#include <algorithm>

#include "kernels/kernels.h"
#include "model/head_sum.h"
#include "model/qkv_projection.h"
#include "tensor_parallel/token_gather.h"

namespace trivet::model {

using tensor_parallel::AxisCuts;
using tensor_parallel::AxisSum;
using tensor_parallel::split_axis;
using tensor_parallel::TokenGather;
namespace {

// The elements of a row that belong to the first head, and the distance to those of the next; 0: all heads have the same.
struct HeadElements {
  int64_t first = 0, step = 0;
};

// Copies `count` elements of each head in each row. Without rows in `from`, all heads get the same elements.
void copy_elements(Context& context, ConstTensorView from, HeadElements source, TensorView to, HeadElements target,
                   int64_t heads, int64_t count) {
  const int64_t from_row = from.shape.dims() > 1 ? from.shape.cols() : 0;
  context.kernels.copy_runs({.from = from.slice(source.first, from.elements() - source.first),
                             .out = to.slice(target.first, to.elements() - target.first),
                             .counts = {1, to.shape.rows(), heads},
                             .run = count,
                             .from_steps = {0, from_row, source.step},
                             .out_steps = {0, to.shape.cols(), target.step}});
}

void zero_elements(Context& context, TensorView to, HeadElements target, int64_t heads, int64_t count) {
  const ScopedTensor zeros(context.arena, to.dtype, {count});
  context.kernels.zero(zeros);
  copy_elements(context, zeros, {}, to, target, heads, count);
}

Shape with_columns(Shape shape, int64_t columns) {
  shape[-1] = columns;
  return shape;
}

Linear make_linear(const LatentQkv::Options& options, int64_t in, int64_t out, const Adapters::Options& adapters) {
  return Linear({.in = in, .out = out, .bias = false, .init_deviation = options.init_deviation, .adapters = adapters});
}

// A projection to all heads, which tensor ranks share.
Linear make_heads(const LatentQkv::Options& options, int64_t in, int64_t head_size, const Adapters::Options& adapters) {
  const int64_t out = options.heads * head_size;
  return Linear({.in = in,
                 .out = out,
                 .bias = false,
                 .init_deviation = options.init_deviation,
                 .split = {0, {out}, {options.heads}},
                 .adapters = adapters});
}

}  // namespace

LatentQkv::LatentQkv(const Options& options)
    : options_(options),
      queries_(make_queries_of(options_)),
      down_(make_linear(options_, options_.hidden, options_.sizes.key_value_rank + options_.sizes.rotary_size,
                        options_.adapters.key_value_down)),
      up_(make_heads(options_, options_.sizes.key_value_rank, plain_size() + value_size(), options_.adapters.key_value_up)),
      norm_(options_.sizes.key_value_rank, options_.sizes.norm_epsilon) {
  const bool latent = queries_.second.has_value();
  queries_.first_index = sub_layers_.add(latent ? "query_down" : "query", queries_.first);
  if (latent) {
    queries_.norm_index = sub_layers_.add("query_norm", *queries_.norm);
    queries_.second_index = sub_layers_.add("query_up", *queries_.second);
  }
  down_index_ = sub_layers_.add("key_value_down", down_);
  norm_index_ = sub_layers_.add("key_value_norm", norm_);
  up_index_ = sub_layers_.add("key_value_up", up_);
}

LatentQkv::Queries LatentQkv::make_queries_of(const Options& options) {
  const int64_t rank = options.sizes.query_rank;
  if (rank == 0) return {make_heads(options, options.hidden, options.head_size, options.adapters.query), {}, {}};
  return {make_linear(options, options.hidden, rank, options.adapters.query_down), RmsNorm(rank, options.sizes.norm_epsilon),
          make_heads(options, rank, options.head_size, options.adapters.query_up)};
}

Shape LatentQkv::output_shape(const Shape& input) const { return with_columns(input, 3 * options_.heads * options_.head_size); }

int64_t LatentQkv::heads_of(const Context& context) const {
  return head_range(options_.heads, options_.heads, split_axis(context)).count;
}

void LatentQkv::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  const int64_t heads = heads_of(context), size = options_.head_size, width = heads * size;
  {
    const ScopedTensor queries(context.arena, y.dtype, with_columns(y.shape, width));
    make_queries(context, weights, x, queries, saved);
    copy_elements(context, queries, {}, y, {}, 1, width);
  }
  make_keys_and_values(context, weights, x, y, saved);
  const int64_t value = value_size();
  if (value < size) zero_elements(context, y, {2 * width + value, size}, heads, size - value);
}

void LatentQkv::make_queries(Context& context, Weights weights, ConstTensorView x, TensorView queries, Saved& saved) const {
  const auto of = [&](int index) { return sub_layers_.of(index, weights); };
  const Queries& q = queries_;
  if (!q.second) return q.first.forward(context, of(q.first_index), x, queries, saved.child(q.first_index));
  const Shape shape = with_columns(x.shape, options_.sizes.query_rank);
  const TensorView latent = saved.keep(context.arena, kQueryLatent, x.dtype, shape);
  const TensorView normed = saved.keep(context.arena, kQueryNormed, x.dtype, shape);
  q.first.forward(context, of(q.first_index), x, latent, saved.child(q.first_index));
  q.norm->forward(context, of(q.norm_index), latent, normed, saved.child(q.norm_index));
  q.second->forward(context, of(q.second_index), normed, queries, saved.child(q.second_index));
}

void LatentQkv::make_keys_and_values(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  const auto of = [&](int index) { return sub_layers_.of(index, weights); };
  const int64_t heads = heads_of(context), size = options_.head_size, width = heads * size;
  const int64_t rank = options_.sizes.key_value_rank, rotary = options_.sizes.rotary_size, value = value_size();
  const TensorView latent = saved.keep(context.arena, kLatent, x.dtype, with_columns(x.shape, rank));
  const TensorView normed = saved.keep(context.arena, kNormed, x.dtype, latent.shape);
  {
    const ScopedTensor down(context.arena, x.dtype, with_columns(x.shape, rank + rotary));
    const ScopedTensor rotary_key(context.arena, x.dtype, with_columns(x.shape, rotary));
    down_.forward(context, of(down_index_), x, down, saved.child(down_index_));
    copy_elements(context, down, {}, latent, {}, 1, rank);
    copy_elements(context, down, {rank}, rotary_key, {}, 1, rotary);
    TokenGather all_rotary_keys(context, rotary_key);
    copy_elements(context, all_rotary_keys.view(), {}, y, {width, size}, heads, rotary);
  }
  norm_.forward(context, of(norm_index_), latent, normed, saved.child(norm_index_));
  const int64_t of_head = plain_size() + value;
  const ScopedTensor up(context.arena, y.dtype, with_columns(y.shape, heads * of_head));
  up_.forward(context, of(up_index_), normed, up, saved.child(up_index_));
  copy_elements(context, up, {0, of_head}, y, {width + rotary, size}, heads, plain_size());
  copy_elements(context, up, {plain_size(), of_head}, y, {2 * width, size}, heads, value);
}

void LatentQkv::run_backward(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const {
  through_queries(pass, dy, dx);
  const ScopedTensor of_keys_and_values(pass.context().arena, dx.dtype, dx.shape);
  through_keys_and_values(pass, dy, of_keys_and_values);
  pass.context().kernels.add(of_keys_and_values, dx);
}

void LatentQkv::through_queries(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const {
  Context& context = pass.context();
  const Queries& q = queries_;
  const int64_t width = heads_of(context) * options_.head_size;
  const IntermediateGradient dqueries(pass, kDqueries, dy.dtype, with_columns(dy.shape, width));
  copy_elements(context, dy, {}, dqueries, {}, 1, width);
  if (!q.second) return pass.through(q.first, sub_layers_, q.first_index, dqueries, dx);
  const Shape shape = with_columns(dx.shape, options_.sizes.query_rank);
  const IntermediateGradient dnormed(pass, kDqueryNormed, dx.dtype, shape), dlatent(pass, kDqueryLatent, dx.dtype, shape);
  pass.through(*q.second, sub_layers_, q.second_index, dqueries, dnormed);
  pass.done_with(kQueryNormed);
  pass.through(*q.norm, sub_layers_, q.norm_index, dnormed, dlatent);
  pass.done_with(kQueryLatent);
  pass.through(q.first, sub_layers_, q.first_index, dlatent, dx);
}

void LatentQkv::through_keys_and_values(const BackwardPass& pass, ConstTensorView dy, TensorView dx) const {
  Context& context = pass.context();
  const int64_t heads = heads_of(context), size = options_.head_size, width = heads * size;
  const int64_t rank = options_.sizes.key_value_rank, rotary = options_.sizes.rotary_size, value = value_size();
  const int64_t of_head = plain_size() + value;
  const IntermediateGradient dup(pass, kDup, dy.dtype, with_columns(dy.shape, heads * of_head));
  copy_elements(context, dy, {width + rotary, size}, dup, {0, of_head}, heads, plain_size());
  copy_elements(context, dy, {2 * width, size}, dup, {plain_size(), of_head}, heads, value);
  const IntermediateGradient dnormed(pass, kDnormed, dx.dtype, with_columns(dx.shape, rank));
  const IntermediateGradient ddown(pass, kDdown, dx.dtype, with_columns(dx.shape, rank + rotary));
  pass.through(up_, sub_layers_, up_index_, dup, dnormed);
  pass.done_with(kNormed);
  {
    const ScopedTensor dlatent(context.arena, dx.dtype, dnormed.view().shape);
    pass.through(norm_, sub_layers_, norm_index_, dnormed, dlatent);
    pass.done_with(kLatent);
    copy_elements(context, dlatent, {}, ddown, {}, 1, rank);
    const ScopedTensor drotary(context.arena, dx.dtype, with_columns(dx.shape, rotary));
    sum_rotary_keys(context, dy, drotary);
    copy_elements(context, drotary, {}, ddown, {rank}, 1, rotary);
  }
  pass.through(down_, sub_layers_, down_index_, ddown, dx);
}

// [Note: gradients of a key that all heads share]
void LatentQkv::sum_rotary_keys(Context& context, ConstTensorView dy, TensorView drotary) const {
  const int64_t heads = heads_of(context), size = options_.head_size, rotary = options_.sizes.rotary_size;
  const int64_t rows = dy.shape.rows(), row = dy.shape.cols(), first = heads * size;
  const ScopedTensor parts(context.arena, dy.dtype, {heads, rows * rotary});
  context.kernels.copy_runs({.from = dy.slice(first, dy.elements() - first),
                             .out = parts,
                             .counts = {1, heads, rows},
                             .run = rotary,
                             .from_steps = {0, size, row},
                             .out_steps = {0, rows * rotary, rotary}});
  const AxisCuts cuts(context, {0, {options_.heads}, {}});
  const ScopedTensor of_heads = sum_over_heads(context, parts, cuts.ends());
  AxisSum sum(context, split_axis(context), drotary);
  context.kernels.copy(of_heads.view().slice(0, rows * rotary), sum.partial());
  sum.start();
  sum.finish();
}

void LatentQkv::backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const {
  run_backward(BackwardPass(context, weights, saved), dy, dx);
}

void LatentQkv::backward(Context& context, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                         Saved& saved) const {
  run_backward(BackwardPass(context, weights, gradients, saved), dy, dx);
}

void LatentQkv::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  const auto weights_of = [&](const Layer& layer, int index) {
    layer.backward_weight(context, sub_layers_.of(index, gradients), saved.child(index));
  };
  weights_of(queries_.first, queries_.first_index);
  if (queries_.second) {
    weights_of(*queries_.norm, queries_.norm_index);
    weights_of(*queries_.second, queries_.second_index);
  }
  weights_of(down_, down_index_);
  weights_of(norm_, norm_index_);
  weights_of(up_, up_index_);
}

void copy_heads(Context& context, ConstTensorView from, TensorView to, int64_t heads) {
  const int64_t from_size = from.shape.cols() / heads, to_size = to.shape.cols() / heads;
  copy_elements(context, from, {0, from_size}, to, {0, to_size}, heads, std::min(from_size, to_size));
  if (from_size < to_size) zero_elements(context, to, {from_size, to_size}, heads, to_size - from_size);
}

}  // namespace trivet::model
