// RmsNorm of each query head and each key head, between their projection and their rotation (kernels/norms.h, HeadNorm). It
// keeps scores from growing without limit.
//
//   qkv[B, S, (N + 2G) D] -> the same, with normalized queries and keys
//
// [Note: gradients of gains that all heads share] Every tensor rank holds both gains, but only its own heads. A rank's part of
// a gradient is the sum over its heads, and the parts are summed over the ranks; in layout mode in the fixed chunks of heads in
// which every product is cut (tensor_parallel/cuts.h). With sequence parallelism the engine sums the gradients of parameters
// that are not split, so that a rank hands over its part.
//
// B sequences, S tokens per sequence, N query heads, G key/value heads, D head size.
#pragma once

#include <vector>

#include "core/layer.h"

namespace trivet::model {

class QkNorm : public Layer {
 public:
  struct Options {
    int64_t heads = 0, key_value_heads = 0, head_size = 0;
    double epsilon = 1e-5;
  };
  explicit QkNorm(const Options& options);

  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  Shape output_shape(const Shape& input) const override { return input; }
  bool allows_sequence_parallelism() const override { return true; }
  bool allows_context_parallelism() const override { return true; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;

 private:
  enum Slot { kX, kDy, kRstd };  // the places of Saved that this layer uses

  void sum_over_tokens_and_heads(Context& context, const Saved& saved, const std::vector<TokenLeaves::Range>& ranges,
                                 TensorView sums) const;

  Options options_;
  std::vector<ParameterSpec> parameters_;  // for queries, for keys
};

}  // namespace trivet::model
