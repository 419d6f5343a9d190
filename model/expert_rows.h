// Rows of tokens for their experts (model/expert_mlp.h): how they are gathered, how those of a token are added up again, and
// what adapters make of them.
#pragma once

#include <vector>

#include "comm/rank_axis.h"
#include "kernels/products.h"
#include "model/expert_work.h"
#include "tensor_parallel/axis_sum.h"

namespace trivet::model {

// The ranges of tokens that sums over tokens are made of, and how many leaves they form.
struct TokenRanges {
  std::vector<kernels::ProductCuts::Range> ranges;
  int64_t leaves = 1;
};
TokenRanges ranges_of(const Context& context, int64_t tokens);

// Adds up the rows of each token, and over tensor ranks. Some rows have a second part that every tensor rank has whole, which
// is added once. [Note: when rows are summed]
class RowSum {
 public:
  // `parts`: there are second parts.
  RowSum(Context& context, int64_t rows, TensorView y, bool parts);

  TensorView partial() const { return over_ranks_.partial(); }  // [T K, H]
  // The place of second parts, [T K, H]; absent: they go to partial(), by add_part.
  TensorView parts() const { return parts_.empty() ? TensorView{} : parts_.view(); }
  // Checks whether this rank has to compute them; otherwise another tensor rank adds them.
  bool adds_parts() const { return !parts_.empty() || !axis_ || axis_->rank() == 0; }
  void add_part(ConstTensorView part, TensorView rows) const;
  void start(ConstTensorView places);
  void finish() { of_tokens_.finish(); }

 private:
  Context& context_;
  const comm::RankAxis* axis_;
  bool ranks_first_;
  ScopedTensor rows_, parts_;
  tensor_parallel::AxisSum over_ranks_, of_tokens_;
};

// The ranks that share the experts; null: this one has all.
const comm::RankAxis* expert_axis(const Context& context);

// 0, 1, 2 ...: the choices of rows whose weights come in the order of rows.
class RowNumbers {
 public:
  RowNumbers(Context& context, int64_t most);
  ConstTensorView first(int64_t count) const { return numbers_.view().slice(0, count); }

 private:
  ScopedTensor numbers_;
};

ScopedTensor gathered(Context& context, ConstTensorView x, ConstTensorView order);

// Memory of products of rows and adapters; none for an adapter of rank 0.
class LowMemory {
 public:
  struct Ranks {
    int64_t gate_up = 0, down = 0;
  };
  LowMemory(Context& context, const Ranks& ranks, DType type, int64_t rows);
  operator LowRows() const { return {view_of(gate_up_), view_of(down_)}; }

 private:
  static TensorView view_of(const ScopedTensor& tensor) { return tensor.empty() ? TensorView{} : tensor.view(); }
  ScopedTensor gate_up_, down_;
};

}  // namespace trivet::model
