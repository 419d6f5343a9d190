// Helps layers whose parameters tensor ranks share (Shoeybi et al. 2019): sums over the ranks and, in layout mode, the
// fixed chunks of every product along a split dim (tensor_parallel/cuts.h).
//
//   AxisSum sum(context, axis, y, bias);
//   product into sum.partial() with bias sum.partial_bias();  sum.start();  (other work)  sum.finish();      y is whole
//
// The partial sum is y itself and is summed in place. With fixed chunks it is float32 instead, the bias is added after the sum,
// and y is rounded once. With sequence parallelism the partial sum has all tokens, y only the rank's own
// (tensor_parallel/token_gather.h). Without an axis there is nothing to sum: start and finish do nothing. start enqueues on the
// axis's stream, and finish waits for it; nobody may touch y in between. After an exception between the two the stream may
// still be working: it must finish before the arena is destroyed.
#pragma once

#include <optional>

#include "comm/rank_axis.h"
#include "core/layer.h"
#include "tensor_parallel/cuts.h"

namespace trivet::tensor_parallel {

// Returns the ranks that share this layer's split parameters, or null if this rank holds them whole.
const comm::RankAxis* split_axis(const Context& context);

// The cuts of a layer's products along its split dim; null if sums need no fixed chunks.
class AxisCuts {
 public:
  AxisCuts(const Context& context, const Split& split);

  const kernels::ProductCuts* rows() const { return cuts_ ? &cuts_->rows : nullptr; }
  const kernels::ProductCuts* cols() const { return cuts_ ? &cuts_->cols : nullptr; }
  const kernels::ProductCuts* sums() const { return cuts_ ? &cuts_->sums : nullptr; }
  std::span<const int64_t> ends() const { return cuts_ ? std::span<const int64_t>(cuts_->ends) : std::span<const int64_t>{}; }

 private:
  std::optional<SplitCuts> cuts_;
};

class AxisSum {
 public:
  // Exact: at most two terms of an element are not zero, so the sum is rounded once and has the same bits in any order.
  enum class Terms { Any, Exact };
  // `axis` null: y needs no sum. The bias is optional.
  AxisSum(Context& context, const comm::RankAxis* axis, TensorView y, ConstTensorView bias = {}, Terms terms = Terms::Any);

  TensorView partial() const { return scratch_.empty() ? y_ : scratch_.view(); }  // [like y, but all tokens]
  // The bias for the product into partial(). It is absent on all ranks but one, so that the sum over ranks adds it once.
  ConstTensorView partial_bias() const;
  void start();
  void finish();

 private:
  bool rounds_after() const { return axis_ && axis_->fixed_sums && terms_ == Terms::Any; }
  bool scatters() const { return axis_ && axis_->splits_tokens; }

  Context* context_;
  const comm::RankAxis* axis_;
  TensorView y_;
  ConstTensorView bias_;
  Terms terms_;
  ScopedTensor scratch_, own_sum_;  // own_sum_: of a rank's own tokens, before it is rounded
  Event started_;
};

// All-reduces `data`: a sum whose bits do not depend on the order, or a maximum.
void reduce_over(const comm::RankAxis& axis, TensorView data, comm::ReduceOp op = comm::ReduceOp::Sum);
// All-reduces a sum of float32 (float64); in layout mode each rank contributes the tree sum of its chunks.
void sum_over(const comm::RankAxis& axis, TensorView data);

}  // namespace trivet::tensor_parallel
