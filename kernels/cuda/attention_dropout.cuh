// Dropout of probabilities on tensor cores: the lanes of a warp together generate the random words of a tile of 128
// probabilities, one block of four per lane, and tell each other which probabilities are kept.
#pragma once

#include "core/random.h"
#include "kernels/cuda/attention_tiles.cuh"

namespace trivet::kernels::cuda {

// Bit k of the result says whether element `element` + k is kept.
__device__ __forceinline__ uint32_t kept_of_four(const AttentionDropout& dropout, uint64_t element, uint64_t counter_high) {
  const auto kept_of_block = [&](uint64_t block) {
    const PhiloxBlock words = philox(dropout.key, block, counter_high);
    uint32_t kept = 0;
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) kept |= static_cast<uint32_t>(!(unit_float(words[k]) < dropout.rate)) << k;
    return kept;
  };
  const uint32_t shift = static_cast<uint32_t>(element % 4);
  uint32_t kept = kept_of_block(element / 4) >> shift;
  if (shift != 0) kept |= kept_of_block(element / 4 + 1) << (4 - shift);
  return kept & 15;
}

// The elements of one head of one sequence.
struct HeadDropout {
  AttentionDropout site;
  uint64_t counter_high, first_element;
  int tokens;

  __device__ __forceinline__ HeadDropout(const AttentionDropout& dropout, const AttentionSizes& sizes, int64_t sequence,
                                         int head)
      : site(dropout),
        counter_high(dropout.counter_high(sequence)),
        first_element(dropout.first_element +
                      static_cast<uint64_t>(head) * static_cast<uint64_t>(sizes.tokens) * static_cast<uint64_t>(sizes.tokens)),
        tokens(sizes.tokens) {}

  __device__ __forceinline__ uint32_t kept_of_keys(int query, int key) const {
    return kept_of_four(
        site, first_element + static_cast<uint64_t>(query) * static_cast<uint64_t>(tokens) + static_cast<uint64_t>(key),
        counter_high);
  }
};

// Bit e of the result says whether c[e] of this lane's C is kept; C starts at this query and key.
template <RowsAre kRows>
__device__ __forceinline__ uint32_t kept_of_tile(const HeadDropout& dropout, int first_query, int first_key) {
  const int lane = lane_index(), g = lane_group(), t = lane_in_group();
  if constexpr (kRows == RowsAre::Queries) {  // 16 queries x 8 keys: lane 2 q + k makes keys 4 k .. of query q
    const uint32_t made = dropout.kept_of_keys(first_query + lane / 2, first_key + lane % 2 * 4);
    const uint32_t upper = __shfl_sync(0xffffffffu, made, 2 * g + t / 2) >> (t % 2 * 2);
    const uint32_t lower = __shfl_sync(0xffffffffu, made, 2 * g + 16 + t / 2) >> (t % 2 * 2);
    return (upper & 3) | (lower & 3) << 2;
  } else {  // 8 queries x 16 keys: lane q + 8 k makes keys 4 k .. of query q
    const uint32_t made = dropout.kept_of_keys(first_query + lane % 8, first_key + lane / 8 * 4);
    uint32_t kept = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int source = 2 * t + e % 2 + g / 4 * 8 + e / 2 * 16;
      kept |= (__shfl_sync(0xffffffffu, made, source) >> (g % 4) & 1) << e;
    }
    return kept;
  }
}

// Flags of the probabilities that are kept in kRowTiles x kColTiles matrices C, at most 8 of them side by side: one
// word for each row of matrices.
template <int kRowTiles>
struct KeptProbabilities {
  uint32_t words[kRowTiles];

  // The first row and column are a query and a key, or a key and a query.
  template <RowsAre kRows, int kColTiles>
  __device__ __forceinline__ void make(const HeadDropout& dropout, int first_row, int first_col) {
    static_assert(kColTiles <= 8);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      words[r] = 0;
#pragma unroll 1
      for (int n = 0; n < kColTiles; ++n) {
        const int row = first_row + 16 * r, col = first_col + 8 * n;
        words[r] |= kept_of_tile<kRows>(dropout, kRows == RowsAre::Queries ? row : col, kRows == RowsAre::Queries ? col : row)
                    << (4 * n);
      }
    }
  }
  __device__ __forceinline__ bool at(int r, int n, int e) const { return words[r] >> (4 * n + e) & 1; }
};

}  // namespace trivet::kernels::cuda
