#include "model/expert_rows.h"

#include <numeric>

#include "kernels/kernels.h"

namespace trivet::model {

using tensor_parallel::split_axis;

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

RowSum::RowSum(Context& context, int64_t rows, TensorView y, bool parts)
    : context_(context),
      axis_(split_axis(context)),
      ranks_first_(axis_ && axis_->fixed_sums),
      rows_(context.arena, y.dtype, {rows, y.shape.cols()}),
      over_ranks_(context, ranks_first_ ? axis_ : nullptr, rows_),
      of_tokens_(context, ranks_first_ ? nullptr : axis_, y) {
  if (parts && ranks_first_) parts_ = ScopedTensor(context.arena, y.dtype, {rows, y.shape.cols()});
}

void RowSum::add_part(ConstTensorView part, TensorView rows) const { context_.kernels.add(part, rows); }

void RowSum::start(ConstTensorView places) {
  over_ranks_.start();
  over_ranks_.finish();
  if (!parts_.empty()) context_.kernels.add(parts_, rows_);
  context_.kernels.combine_rows({.x = rows_, .places = places, .out = as_rows(of_tokens_.partial())});
  of_tokens_.start();
}

const comm::RankAxis* expert_axis(const Context& context) {
  const comm::RankAxis* axis = context.axes[Axis::Expert];
  return axis && axis->size() > 1 ? axis : nullptr;
}

RowNumbers::RowNumbers(Context& context, int64_t most) : numbers_(context.arena, DType::Int32, {most}) {
  std::vector<int32_t> numbers(static_cast<size_t>(most));
  std::iota(numbers.begin(), numbers.end(), 0);
  context.kernels.from_host({numbers.data(), DType::Int32, {most}}, numbers_);
}

ScopedTensor gathered(Context& context, ConstTensorView x, ConstTensorView order) {
  ScopedTensor rows(context.arena, x.dtype, {order.elements(), x.shape.cols()});
  context.kernels.gather_rows({.x = as_rows(x), .order = order, .out = rows});
  return rows;
}

LowMemory::LowMemory(Context& context, const Ranks& ranks, DType type, int64_t rows) {
  if (ranks.gate_up > 0) gate_up_ = ScopedTensor(context.arena, type, {rows, ranks.gate_up});
  if (ranks.down > 0) down_ = ScopedTensor(context.arena, type, {rows, ranks.down});
}

}  // namespace trivet::model
