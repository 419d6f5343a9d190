// The sizes that attention's kernels need, as plain numbers that are passed to a launch by value.
//
//   B sequences, S tokens per sequence, N query heads, G key/value heads, D head size
//   qkv[B, S, (N + 2G) D] = [query heads | key heads | value heads], out[B, S, N D]
#pragma once

#include <cstdint>

#include "kernels/cuda/number.cuh"
#include "kernels/kernels.h"
#include "kernels/workspace.h"

namespace trivet::kernels::cuda {

inline constexpr double kLog2E = 1.4426950408889634074;

struct AttentionSizes {
  int64_t sequences, qkv_width, out_width;
  int tokens, heads, key_value_heads, head_size, padded_tokens;

  AttentionSizes(const Shape& qkv, int64_t n, int64_t g)
      : sequences(qkv[0]),
        qkv_width(qkv[2]),
        out_width(qkv[2] / (n + 2 * g) * n),
        tokens(static_cast<int>(qkv[1])),
        heads(static_cast<int>(n)),
        key_value_heads(static_cast<int>(g)),
        head_size(static_cast<int>(qkv[2] / (n + 2 * g))),
        padded_tokens(static_cast<int>(padded_attention_rows(qkv[1]))) {}
};

// The tokens of each sequence whose results are wanted.
struct WantedTokens {
  int first[2], end[2];

  WantedTokens(const OwnTokens& own, int64_t tokens) {
    for (int i = 0; i < 2; ++i) {
      first[i] = static_cast<int>(own.ranges[i].begin);
      end[i] = static_cast<int>(own.ranges[i].end);
    }
    if (own.all()) end[0] = static_cast<int>(tokens);
  }
  __device__ __forceinline__ bool any_of(int begin, int count) const {
    return (begin < end[0] && begin + count > first[0]) || (begin < end[1] && begin + count > first[1]);
  }
};

// 1 / sqrt(D) or what takes its place, and the same times log2(e), because probabilities are computed as powers of two.
template <typename Sum>
struct ScoreScale {
  Sum plain, log2;

  template <typename Args>  // Attention, AttentionBackward
  explicit ScoreScale(const Args& args)
      : plain(static_cast<Sum>(args.score_scale())), log2(static_cast<Sum>(kLog2E * args.score_scale())) {}
};

// Dropout of probabilities: that of sequence b, head n, query i and key j is element first_element + (n S + i) S + j of sample
// first_sample + b.
struct AttentionDropout {
  Number step;
  uint64_t key, first_sample, first_element;
  float rate, keep;  // keep: 1 / (1 - rate), the factor of what is not dropped

  explicit AttentionDropout(const DropoutSite& site)
      : step(site.step),
        key(site.key),
        first_sample(static_cast<uint64_t>(site.first_sample)),
        first_element(static_cast<uint64_t>(site.first_element)),
        rate(site.rate),
        keep(1.0f / (1.0f - site.rate)) {}

  // The upper half of the counter of a sequence's random words.
  __device__ __forceinline__ uint64_t counter_high(int64_t sequence) const {
    return (static_cast<uint64_t>(read(step)) << 32) + first_sample + static_cast<uint64_t>(sequence);
  }
};

}  // namespace trivet::kernels::cuda
