#include "model/projection_norm.h"

#include "kernels/kernels.h"
#include "model/qkv_projection.h"
#include "tensor_parallel/axis_sum.h"

namespace trivet::model {

using tensor_parallel::split_axis;
namespace {

constexpr size_t kParts = 2;  // queries, keys

// Copies `count` columns of every row.
void copy_columns(Context& context, ConstTensorView from, int64_t first, TensorView to, int64_t to_first, int64_t count) {
  const int64_t wide = from.shape.cols(), to_wide = to.shape.cols();
  context.kernels.copy_runs({.from = from.slice(first, from.elements() - first),
                             .out = to.slice(to_first, to.elements() - to_first),
                             .counts = {1, 1, from.shape.rows()},
                             .run = count,
                             .from_steps = {0, 0, wide},
                             .out_steps = {0, 0, to_wide}});
}

}  // namespace

ProjectionNorm::ProjectionNorm(const QkNorm::Options& options) : options_(options) {
  const std::pair<const char*, int64_t> gains[] = {{"query_norm.gain", options.heads},
                                                   {"key_norm.gain", options.key_value_heads}};
  for (const auto& [name, heads] : gains)
    parameters_.push_back({.name = name, .shape = {heads * options.head_size}, .init = {Init::Kind::Ones, 0}, .decay = false});
}

ProjectionNorm::Columns ProjectionNorm::columns_of(const Context& context, size_t part) const {
  const HeadRange heads = head_range(options_.heads, options_.key_value_heads, split_axis(context));
  const int64_t size = options_.head_size;
  if (part == 0) return {0, heads.count * size, options_.heads * size, heads.first * size};
  return {heads.count * size, heads.key_value_count * size, options_.key_value_heads * size, heads.first_key_value * size};
}

// Returns the columns of all ranks, [T, all]; see [Note: norms of projections that ranks share].
ScopedTensor ProjectionNorm::gather(Context& context, ConstTensorView own, const Columns& columns) const {
  const int64_t rows = own.shape.rows();
  ScopedTensor all(context.arena, own.dtype, {rows, columns.all});
  const comm::RankAxis* const axis = split_axis(context);
  if (!axis) {
    copy_columns(context, own, columns.first, all, 0, columns.count);
    return all;
  }
  const ScopedTensor packed(context.arena, own.dtype, {rows, columns.count}),
      by_rank(context.arena, own.dtype, {axis->size(), rows, columns.count});
  copy_columns(context, own, columns.first, packed, 0, columns.count);
  axis->group.all_gather(packed, by_rank, axis->stream);
  axis->stream.record().synchronize();
  for (int rank = 0; rank < axis->size(); ++rank)
    copy_columns(context,
                 by_rank.view().slice(rank * rows * columns.count, rows * columns.count).reshaped({rows, columns.count}), 0,
                 all, rank * columns.count, columns.count);
  return all;
}

void ProjectionNorm::copy_values(Context& context, ConstTensorView from, TensorView to) const {
  const Columns keys = columns_of(context, 1);
  copy_columns(context, from, keys.first + keys.count, to, keys.first + keys.count, keys.count);
}

void ProjectionNorm::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  saved.reference(kX, x);
  const int64_t rows = x.shape.rows();
  const TensorView rstd = saved.keep(context.arena, kRstd, statistics_dtype(x.dtype), {static_cast<int64_t>(kParts), rows});
  for (size_t part = 0; part < kParts; ++part) {
    const Columns columns = columns_of(context, part);
    const ScopedTensor all = gather(context, x, columns), normed(context.arena, x.dtype, {rows, columns.all});
    context.kernels.rms_norm({.x = all,
                              .gain = weights[part],
                              .y = normed,
                              .rstd = rstd.slice(static_cast<int64_t>(part) * rows, rows),
                              .epsilon = static_cast<float>(options_.epsilon)});
    copy_columns(context, normed, columns.before, y, columns.first, columns.count);
  }
  copy_values(context, x, y);
}

void ProjectionNorm::run_backward_input(Context& context, ConstTensorView gain, ConstTensorView x, ConstTensorView dy,
                                        ConstTensorView rstd, TensorView dx, const Columns& columns) const {
  const ScopedTensor all_dx(context.arena, x.dtype, x.shape);
  context.kernels.rms_norm_backward_input({.dy = dy, .x = x, .gain = gain, .rstd = rstd, .dx = all_dx});
  copy_columns(context, all_dx, columns.before, dx, columns.first, columns.count);
}

void ProjectionNorm::run_backward_weight(Context& context, const Gradient& gradient, ConstTensorView x, ConstTensorView dy,
                                         ConstTensorView rstd, const Columns& columns) const {
  const comm::RankAxis* const axis = split_axis(context);
  const TensorView all = gradient.view;
  if (!axis || !axis->splits_tokens)
    return context.kernels.rms_norm_backward_weight(
        {.dy = dy, .x = x, .rstd = rstd, .dgain = all, .accumulate = gradient.accumulate});
  const ScopedTensor whole(context.arena, all.dtype, all.shape);
  if (gradient.accumulate)
    context.kernels.copy(all, whole);
  else
    context.kernels.zero(all);
  context.kernels.rms_norm_backward_weight({.dy = dy, .x = x, .rstd = rstd, .dgain = whole, .accumulate = gradient.accumulate});
  context.kernels.copy(whole.view().slice(columns.before, columns.count), all.slice(columns.before, columns.count));
}

void ProjectionNorm::backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const {
  backward(context, weights, {}, dy, dx, saved);
}

// Without gradients, of which there are none or two, it is backward_input.
void ProjectionNorm::backward(Context& context, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                              Saved& saved) const {
  saved.reference(kDy, dy);
  const int64_t rows = dy.shape.rows();
  for (size_t part = 0; part < kParts; ++part) {
    const Columns columns = columns_of(context, part);
    const ScopedTensor x = gather(context, saved[kX], columns), all_dy = gather(context, dy, columns);
    const ConstTensorView rstd = saved[kRstd].slice(static_cast<int64_t>(part) * rows, rows);
    run_backward_input(context, weights[part], x, all_dy, rstd, dx, columns);
    if (!gradients.empty() && !gradients[part].view.absent())
      run_backward_weight(context, gradients[part], x, all_dy, rstd, columns);
  }
  copy_values(context, dy, dx);
}

void ProjectionNorm::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  const ConstTensorView dy = saved[kDy];
  const int64_t rows = dy.shape.rows();
  for (size_t part = 0; part < kParts; ++part) {
    if (gradients[part].view.absent()) continue;
    const Columns columns = columns_of(context, part);
    const ScopedTensor x = gather(context, saved[kX], columns), all_dy = gather(context, dy, columns);
    run_backward_weight(context, gradients[part], x, all_dy, saved[kRstd].slice(static_cast<int64_t>(part) * rows, rows),
                        columns);
  }
}

}  // namespace trivet::model
