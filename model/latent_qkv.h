// The projections of multi-head latent attention to queries, keys and values (DeepSeek-V2, 2024). Keys and values of a token
// come from one short vector, its latent, and so do queries if query_rank > 0. A part of each query and key rotates; that of
// the key is the same for all heads.
//
//   x[B, S, H] --query_down--> [B, S, Q] --norm--> --query_up--> queries[B, S, N (R + P)]             or --query--> queries
//   x[B, S, H] --key_value_down--> latent[B, S, K], rotary key[B, S, R]
//              latent --norm--> --key_value_up--> [B, S, N (P + V)], for each head its key without the rotary part, its value
//
// The result has the order of QkvProjection's, [B, S, 3 N D] with D = R + P: a head is its rotary part and then the other one,
// and values that are narrower than D end with zeros.
//
// [Note: gradients of a key that all heads share] Tensor ranks share the heads, and each has the latents and the rotary key
// whole. Its gradient is a sum over the heads of all ranks: each sums its own, in layout mode in the fixed chunks of
// tensor_parallel/cuts.h. The gradients of latents are summed by the layers that ranks share.
//
// B sequences, S tokens per sequence, H hidden, N heads, Q and K ranks of the latents, R rotary and P plain elements of a head,
// V elements of a value.
#pragma once

#include <optional>
#include <vector>

#include "model/latent_attention.h"
#include "model/linear.h"
#include "model/norm.h"
#include "model/sub_layers.h"

namespace trivet::model {

// The adapters of its projections; those that it has not have none.
struct LatentAdapters {
  Adapters::Options query, query_down, query_up, key_value_down, key_value_up;
};

class LatentQkv : public Layer {
 public:
  struct Options {
    int64_t hidden = 0, heads = 0, head_size = 0;
    LatentAttention sizes;
    double init_deviation = 0.02;
    LatentAdapters adapters = {};
  };
  explicit LatentQkv(const Options& options);

  std::span<const ParameterSpec> parameters() const override { return sub_layers_.parameters(); }
  Shape output_shape(const Shape& input) const override;  // for the unsplit layer
  bool allows_sequence_parallelism() const override { return true; }
  bool allows_context_parallelism() const override { return true; }
  void forward(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const override;
  void backward_input(Context&, Weights, ConstTensorView dy, TensorView dx, Saved&) const override;
  void backward_weight(Context&, Gradients, const Saved&) const override;
  void backward(Context&, Weights, Gradients, ConstTensorView dy, TensorView dx, Saved&) const override;

 private:
  // The places of Saved that this layer uses.
  enum Slot { kQueryLatent, kQueryNormed, kLatent, kNormed, kDqueries, kDqueryNormed, kDqueryLatent, kDup, kDnormed, kDdown };

  // A product, or two with a norm of the short vector between them.
  struct Queries {
    Linear first;
    std::optional<RmsNorm> norm;
    std::optional<Linear> second;
    int first_index = 0, norm_index = 0, second_index = 0;
  };
  static Queries make_queries_of(const Options& options);
  int64_t heads_of(const Context& context) const;
  int64_t value_size() const { return options_.sizes.value_size_of(options_.head_size); }
  int64_t plain_size() const { return options_.head_size - options_.sizes.rotary_size; }
  void make_queries(Context&, Weights, ConstTensorView x, TensorView queries, Saved&) const;
  void make_keys_and_values(Context&, Weights, ConstTensorView x, TensorView y, Saved&) const;
  void through_queries(const BackwardPass&, ConstTensorView dy, TensorView dx) const;
  void through_keys_and_values(const BackwardPass&, ConstTensorView dy, TensorView dx) const;
  void sum_rotary_keys(Context&, ConstTensorView dy, TensorView drotary) const;
  void run_backward(const BackwardPass&, ConstTensorView dy, TensorView dx) const;

  Options options_;
  Queries queries_;
  Linear down_, up_;
  RmsNorm norm_;
  SubLayers sub_layers_;
  int down_index_, norm_index_, up_index_;
};

// Copies each of the heads in rows of `from` to a head of `to`, whose size may differ: what is too much is left out, and what
// is missing becomes 0, as memory may hold NaN. Both [B, S, heads x their size].
void copy_heads(Context& context, ConstTensorView from, TensorView to, int64_t heads);

}  // namespace trivet::model
