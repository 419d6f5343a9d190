// Threads and blocks of attention's kernels: which part of the work each one does, and in which order.
#pragma once

#include "kernels/cuda/attention_sizes.h"
#include "kernels/cuda/tensor_core.cuh"

namespace trivet::kernels::cuda {

inline constexpr int kWarpThreads = 32;

// Indices in one-dimensional blocks.
__device__ __forceinline__ int lane_index() { return thread_index() % kWarpThreads; }
__device__ __forceinline__ int warp_index() { return thread_index() / kWarpThreads; }

// [Note: order of blocks] Blocks start in the order of their index. The blocks of `together` heads are interleaved, the longest
// first, so that the data they share stays in the second-level cache and the blocks that end last are short.
struct BlockOrder {
  int tiles, heads, together;

  BlockOrder(int64_t tiles_of_head, int64_t all_heads, int64_t bytes_of_head)
      : tiles(static_cast<int>(tiles_of_head)),
        heads(static_cast<int>(all_heads)),
        together(static_cast<int>(kCacheBytes / bytes_of_head + 1)) {}

  static constexpr int64_t kCacheBytes = int64_t{16} << 20;  // well below the 40 to 60 MB of a GPU

  unsigned blocks() const { return static_cast<unsigned>(tiles) * static_cast<unsigned>(heads); }
};
struct BlockPlace {
  int tile, head;  // tile 0 starts first

  __device__ __forceinline__ explicit BlockPlace(const BlockOrder& order) {
    const auto block = static_cast<unsigned>(block_index());
    const unsigned size = static_cast<unsigned>(order.together) * static_cast<unsigned>(order.tiles);
    const unsigned first_head = block / size * static_cast<unsigned>(order.together), place = block % size;
    const unsigned present = min(static_cast<unsigned>(order.heads) - first_head, static_cast<unsigned>(order.together));
    tile = static_cast<int>(place / present);
    head = static_cast<int>(first_head + place % present);
  }
};

// The work of a block: some queries of a head, or some keys of a key/value head, of one sequence. If a loop separates two uses,
// it is cheaper to compute this again than to keep it.
struct QueryBlock {
  int64_t sequence;
  int head, group, first_query;

  __device__ __forceinline__ QueryBlock(const BlockOrder& order, const AttentionSizes& sizes, int queries) {
    const BlockPlace place(order);
    sequence = place.head / sizes.heads;
    head = place.head % sizes.heads;
    group = head / (sizes.heads / sizes.key_value_heads);
    first_query = (order.tiles - 1 - place.tile) * queries;  // the last queries see most keys
  }
};
struct KeyBlock {
  int64_t sequence;
  int group, first_head, first_key;

  __device__ __forceinline__ KeyBlock(const BlockOrder& order, const AttentionSizes& sizes, int keys) {
    const BlockPlace place(order);
    sequence = place.head / sizes.key_value_heads;
    group = place.head % sizes.key_value_heads;
    first_head = group * (sizes.heads / sizes.key_value_heads);
    first_key = place.tile * keys;  // the first keys are seen by most queries
  }
};

}  // namespace trivet::kernels::cuda
