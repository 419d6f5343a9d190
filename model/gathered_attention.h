// Attention of context ranks that gather keys and values (Llama Team 2024, arXiv:2407.21783, section 3.3.2): each computes all
// heads of its own queries. One key/value head at a time is gathered, with the query heads that share it, so that whole
// sequences of only those exist; the next one comes while attention of this one is computed.
//
//   forward    keys and values of all ranks; out of the rank's own queries
//   backward   also queries, dout, out and their statistics of all ranks; dq of the rank's own queries from all keys, and dk
//              and dv of its own keys from all queries
//
// No gradient is summed over ranks: the kernel computes each with the bits that it has on one rank, for which backward
// multiplies up to seven matrices instead of five. With c ranks, B sequences of S tokens, N and G heads of D elements, a rank
// receives (c - 1) / c B S elements of 2 G D forward, and of (3 N + 2 G) D backward.
//
// A rank's own tokens are SequencePart::tokens, in the order of the sequence.
#pragma once

#include <span>

#include "comm/rank_axis.h"
#include "core/layer.h"
#include "core/stream.h"
#include "kernels/attention.h"
#include "model/whole_sequences.h"

namespace trivet::model {

// The kernels' arguments but their tensors: `rotary` has no frequencies if nothing is rotated. Number of heads, head size and
// dropout are those of all heads of the rank.
struct CoreOptions {
  kernels::Attention core;
  kernels::Rotary rotary;
  int64_t head_size = 0;
};
// What forward makes of own tokens, and backward reads: n tokens of each sequence.
struct OwnTensors {
  ConstTensorView qkv;          // [B, n, (N + 2G) D], before rotary
  TensorView out, log_sum_exp;  // [B, n, N D], [B, N, n]
};

class GatheredAttention {
 public:
  GatheredAttention(Context& context, const comm::RankAxis& axis, const CoreOptions& options)
      : context_(context), axis_(axis), options_(options) {}

  // Complete when the call returns. After an exception the axis's stream must finish before the arena is destroyed.
  void forward(const OwnTensors& own) const;
  void backward(const OwnTensors& own, ConstTensorView dout, TensorView dqkv) const;

 private:
  struct OwnColumns {
    ConstTensorView own;  // [B, n, W]
    TokenColumns columns;
  };
  struct Destination {
    TensorView whole;  // [B, S, W]
    TokenColumns columns;
  };
  // Runs while the group before it is computed.
  struct Exchange {
    ScopedTensor packed, received;  // [B, n, w], [c][B, n, w]
    Event arrived;
  };
  struct BackwardExchange {
    Exchange tensors, statistics;
  };
  int64_t length(ConstTensorView own) const { return own.shape[1] * axis_.size(); }
  int64_t queries_per_key() const { return options_.core.heads / options_.core.key_value_heads; }
  TokenColumns queries_of(int64_t group) const;
  TokenColumns key_of(int64_t group) const;
  TokenColumns value_of(int64_t group) const;
  Shape group_shape(ConstTensorView own_qkv) const;  // [B, S, (N / G + 2) D]

  Exchange start(std::span<const OwnColumns> all) const;
  Exchange start_statistics(ConstTensorView own, int64_t group) const;
  Exchange start_forward(const OwnTensors& own, int64_t group) const;
  BackwardExchange start_backward(const OwnTensors& own, ConstTensorView dout, int64_t group) const;
  void start(Exchange& exchange) const;
  void finish(Exchange& exchange, std::span<const Destination> to) const;
  void copy_own_statistics(ConstTensorView whole, TensorView own, int64_t group) const;
  kernels::Attention core_of(int64_t group, int64_t tokens) const;
  void rotate(TensorView group_qkv, bool backward) const;

  Context& context_;
  const comm::RankAxis& axis_;
  CoreOptions options_;
};

}  // namespace trivet::model
