// RmsNorm of all query heads of a token together, and of all its key heads together, between their projection and their
// rotation, as in OLMo 2: the whole projection has one mean square, and each of its elements a gain of its own.
//
//   qkv[B, S, (N + 2G) D] -> the same, with normalized queries and keys
//
// [Note: norms of projections that ranks share] A mean square is a sum over the heads of all tensor ranks. They gather the
// queries, and then the keys, and each normalizes all of them and takes its own: the same sums as on one rank, with the same
// bits. Backward gathers them again, and their gradients. So there may not be more tensor ranks than key/value heads, whose
// gradients would be partial sums. Every rank holds both gains whole and computes their whole gradients. With sequence
// parallelism the engine sums these over the ranks, so that a rank hands over the elements of its own heads, and zeros.
//
// B sequences, S tokens per sequence, N query heads, G key/value heads, D head size.
#pragma once

#include <vector>

#include "core/layer.h"
#include "model/qk_norm.h"

namespace trivet::model {

class ProjectionNorm : public Layer {
 public:
  explicit ProjectionNorm(const QkNorm::Options& options);

  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  Shape output_shape(const Shape& input) const override { return input; }
  bool allows_sequence_parallelism() const override { return true; }
  bool allows_context_parallelism() const override { return true; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;
  void backward(Context&, Weights, Gradients, ConstTensorView dy, TensorView dx, Saved&) const override;

 private:
  enum Slot { kX, kDy, kRstd };  // the places of Saved that this layer uses

  // Queries or keys among the columns of a rank's qkv, and among those of all ranks.
  struct Columns {
    int64_t first = 0, count = 0;  // of the rank
    int64_t all = 0, before = 0;   // of all ranks, and of those before this one
  };
  Columns columns_of(const Context& context, size_t part) const;
  ScopedTensor gather(Context& context, ConstTensorView own, const Columns& columns) const;
  void copy_values(Context& context, ConstTensorView from, TensorView to) const;
  void run_backward_input(Context& context, ConstTensorView gain, ConstTensorView x, ConstTensorView dy, ConstTensorView rstd,
                          TensorView dx, const Columns& columns) const;
  void run_backward_weight(Context& context, const Gradient& gradient, ConstTensorView x, ConstTensorView dy,
                           ConstTensorView rstd, const Columns& columns) const;

  QkNorm::Options options_;
  std::vector<ParameterSpec> parameters_;  // for queries, for keys
};

}  // namespace trivet::model
