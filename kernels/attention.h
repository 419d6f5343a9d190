// Attention, causal or not, and rotary positions.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "core/sequence_part.h"
#include "kernels/elementwise.h"
#include "kernels/kernel_call.h"

namespace trivet::kernels {

// Rotates the first 2P elements of the query and key heads of qkv[B, S, (N + 2G) D] in place (RoFormer, Su et al. 2021), and
// multiplies them by `magnitude`. The pairs are (i, i + P), their angles position * frequencies[i], where position counts
// within the sequence from `first` on, unless `positions` are given. `backward` rotates in the other direction, which gives the
// gradient. With `query_growth`, query heads are also multiplied by 1 + query_growth ln(1 + floor(position / query_step)), all
// elements of them, so that attention stays sharp over long texts (Llama 4).
struct Rotary {
  TensorView qkv;
  int64_t heads = 0, key_value_heads = 0;  // N, G
  std::span<const double> frequencies;     // [P]
  bool backward = false;
  double magnitude = 1;
  ConstTensorView positions = {};  // optional int32 [B, S], none negative
  int64_t first = 0;               // the position of the first token
  double query_growth = 0;         // 0: queries are only rotated
  int64_t query_step = 1;

  double query_factor(int64_t position) const {
    return 1 + query_growth * std::log1p(static_cast<double>(position / query_step));
  }
  int64_t head_size() const { return qkv.shape[2] / (heads + 2 * key_value_heads); }
  int64_t pairs() const { return static_cast<int64_t>(frequencies.size()); }  // P

  void check() const;
  KernelCall describe() const;
};

// softmax(q k^T / sqrt(D)) v per head, without a stored score matrix (FlashAttention, Dao et al. 2022). With `scale`, it takes
// the place of 1 / sqrt(D); with `soft_cap`, each score becomes soft_cap tanh(score / soft_cap) before the softmax. If
// attention is causal, a query sees the keys of its own token and of those before it, or of these the last `window`; otherwise
// it sees all keys of its sequence. qkv[B, S, (N + 2G) D] = [query heads | key heads | value heads]; out[B, S, N D];
// log_sum_exp: float32 [B, N, S], kept for backward. Dropout acts on the probabilities: that of head n, query i and key j is
// element first_element + (n S + i) S + j of its sample.
//
// With `documents`, int32 [B, S], a sequence is several documents that do not see each other: documents[b, i] is the first
// token of token i's document, or S for padding, which sees nothing and which nothing sees. It never descends along a sequence.
// The results of a document have the bits that they have alone at the beginning of a sequence of S tokens, but for dropout (on
// CUDA: but for the order of sums). Those of padding are 0.
//
// With `own`, only results of these tokens are computed, with the bits that they have among all: forward those of their
// queries, for which the keys and values of all tokens must be there, backward dq, dk and dv of them, for which all tensors
// must be whole. What the other rows of the results hold afterwards is not defined.
struct Attention {
  ConstTensorView qkv;
  TensorView out, log_sum_exp;
  int64_t heads = 0, key_value_heads = 0;
  bool causal = true;
  int64_t window = 0;   // keys that a query sees at most, its own among them; 0: all that causality leaves
  double scale = 0;     // scales scores; 0: 1 / sqrt(D)
  double soft_cap = 0;  // caps scores; 0: none
  DropoutSite dropout;
  ConstTensorView documents = {};  // optional, with causal attention
  OwnTokens own = {};

  bool hides_early_keys() const { return window > 0 && window < qkv.shape[1]; }
  int64_t head_size() const { return qkv.shape[2] / (heads + 2 * key_value_heads); }
  double score_scale() const { return scale > 0 ? scale : 1 / std::sqrt(static_cast<double>(head_size())); }

  void check() const;
  KernelCall describe() const;
};

// Merges attention of the same queries over other keys into `out`, as one softmax over all of these keys gives it (ring
// attention, Liu et al. 2023):
//   L = log(e^log_sum_exp + e^more_log_sum_exp),  out = e^(log_sum_exp - L) out + e^(more_log_sum_exp - L) more,  log_sum_exp =
//   L
// more[B, S, N D]; out like it, and both log_sum_exp[B, N, S], in float32 (float64 if `more` is). All are finite.
struct MergeAttention {
  ConstTensorView more, more_log_sum_exp;
  TensorView out, log_sum_exp;
  int64_t heads = 0;

  void check() const;
  KernelCall describe() const;
};

// Attention whose softmax has one more score for each head, the sink, that belongs to no key (gpt-oss; Xiao et al. 2023), from
// attention without it:
//   L = log(e^log_sum_exp + e^sink),  out = e^(log_sum_exp - L) out,  log_sum_exp = L
// AttentionBackward takes these results as they are. out[B, S, N D], log_sum_exp[B, N, S].
struct AttentionSinks {
  ConstTensorView sinks;  // [N], in the type of out
  TensorView out, log_sum_exp;

  int64_t heads() const { return sinks.elements(); }
  void check() const;
  KernelCall describe() const;
};

// dsinks[b, s, n] = -e^(sinks[n] - log_sum_exp[b, n, s]) (dout . out of head n): the part of each token in a sink's gradient.
// out and log_sum_exp are those with sinks.
struct AttentionSinksBackward {
  ConstTensorView dout, out, log_sum_exp, sinks;
  TensorView dsinks;  // [B, S, N], of dout's type

  int64_t heads() const { return sinks.elements(); }
  void check() const;
  KernelCall describe() const;
};

struct AttentionBackward {
  ConstTensorView dout, qkv, out, log_sum_exp;
  TensorView dqkv;  // all of it is written
  int64_t heads = 0, key_value_heads = 0;
  bool causal = true;
  int64_t window = 0;   // keys that a query sees at most, its own among them; 0: all that causality leaves
  double scale = 0;     // scales scores; 0: 1 / sqrt(D)
  double soft_cap = 0;  // caps scores; 0: none
  DropoutSite dropout;
  ConstTensorView documents = {};  // optional, with causal attention
  OwnTokens own = {};

  bool hides_early_keys() const { return window > 0 && window < qkv.shape[1]; }
  int64_t head_size() const { return qkv.shape[2] / (heads + 2 * key_value_heads); }
  double score_scale() const { return scale > 0 ? scale : 1 / std::sqrt(static_cast<double>(head_size())); }

  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels
