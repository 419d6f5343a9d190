// Attention, causal or not, and rotary positions.
#pragma once

#include <cstdint>

#include "kernels/elementwise.h"
#include "kernels/kernel_call.h"
#include "kernels/rotary_scaling.h"

namespace trivet::kernels {

// Rotates the query and key heads of qkv[B, S, (N + 2G) D] in place (RoFormer, Su et al. 2021), or the first R elements of
// each. The pairs are (i, i + R/2), their angles position * base^(-2i/R), where position counts within the sequence, unless
// `positions` are given, and `scaling` changes the frequency. `inverse` rotates back, which is the backward.
struct Rotary {
  TensorView qkv;
  int64_t heads = 0, key_value_heads = 0;  // N, G
  float base = 10000.0f;
  bool inverse = false;
  int64_t rotated = 0;  // R; 0: D
  RotaryScaling scaling = {};
  ConstTensorView positions = {};  // optional int32 [B, S], none negative

  int64_t head_size() const { return qkv.shape[2] / (heads + 2 * key_value_heads); }
  int64_t pairs() const { return (rotated > 0 ? rotated : head_size()) / 2; }  // of a head

  void check() const;
  KernelCall describe() const;
};

// softmax(q k^T / sqrt(D)) v per head, without a stored score matrix (FlashAttention, Dao et al. 2022). If it is causal, a
// query sees the keys of its own token and of those before it, or of these the last `window`; otherwise it sees all keys of its
// sequence. qkv[B, S, (N + 2G) D] = [query heads | key heads | value heads]; out[B, S, N D]; log_sum_exp: float32 [B, N, S],
// kept for backward. Dropout acts on the probabilities: that of head n, query i and key j is element
// first_element + (n S + i) S + j of its sample.
struct Attention {
  ConstTensorView qkv;
  TensorView out, log_sum_exp;
  int64_t heads = 0, key_value_heads = 0;
  bool causal = true;
  int64_t window = 0;  // keys that a query sees at most, its own among them; 0: all that causality leaves
  DropoutSite dropout;

  bool hides_early_keys() const { return window > 0 && window < qkv.shape[1]; }

  void check() const;
  KernelCall describe() const;
};

struct AttentionBackward {
  ConstTensorView dout, qkv, out, log_sum_exp;
  TensorView dqkv;  // all of it is written
  int64_t heads = 0, key_value_heads = 0;
  bool causal = true;
  int64_t window = 0;  // keys that a query sees at most, its own among them; 0: all that causality leaves
  DropoutSite dropout;

  bool hides_early_keys() const { return window > 0 && window < qkv.shape[1]; }

  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels
