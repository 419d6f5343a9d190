// Causal attention on tensor cores with a running softmax (Milakov & Gimelshein 2018; FlashAttention-2, Dao 2023). Each block
// has 128 queries of a head, each warp 32 of them. Keys and values come in tiles; the next tile is copied while the current one
// is used. Scores, probabilities and sums stay in registers. attention_simple*.cu do what tensor cores cannot, and attention
// that is not causal, has a window or a soft cap, or both documents and dropout.
#include "core/cuda/launch.h"
#include "kernels/cuda/attention_dispatch.h"
#include "kernels/cuda/attention_dropout.cuh"
#include "kernels/cuda/attention_simple.h"
#include "kernels/cuda/attention_tiles.cuh"

namespace trivet::kernels::cuda {
namespace {

// The division of the work: queries of a block, keys of a tile, and the blocks that a multiprocessor holds at a time.
template <int kQueriesOfBlock, int kWarps, int kKeysOfTile, int kBlocksAtATime>
struct Division {
  static constexpr int kQueries = kQueriesOfBlock, kThreads = kWarps * kWarpThreads, kKeys = kKeysOfTile;
  static constexpr int kBlocks = kBlocksAtATime, kRowTiles = kQueries / 16 / kWarps;
};
// With D = 128, the scores of 64 keys would leave too few registers, and two blocks would be too large for sm_80's shared
// memory; with 48 keys, registers still spill there.
// With D = 64, tiles of 128 keys are 1.2 to 1.3 times as fast as of 64 on an H200; with dropout or documents, registers would
// spill.
template <int D, bool kDropoutOrDocuments>
using DivisionOf = Division<128, 4,
                            D == 128                          ? 32
                            : D == 64 && !kDropoutOrDocuments ? 128
                                                              : 64,
                            2>;

template <typename T>
struct Arguments {
  const T* qkv;
  T* out;
  float* log_sum_exp;
  AttentionSizes sizes;
  ScoreScale<float> scale;
  AttentionDropout dropout;
  BlockOrder order;
  const int32_t* documents;
  WantedTokens wanted;
};

// Maxima and sums of a lane's rows g and g + 8 of every tile. Until the end, a sum covers only this lane's columns.
template <int kRowTiles>
struct RowStatistics {
  float maximum[kRowTiles][2], total[kRowTiles][2];

  __device__ __forceinline__ RowStatistics() {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) maximum[r][half] = -INFINITY, total[r][half] = 0;
  }
};

__device__ __forceinline__ float maximum_of_group(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float sum_of_group(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Scores become exp(scale * (score - maximum)); sums made with an earlier maximum are scaled to the new one. scale_log2 is
// log2(e) / sqrt(D) or what takes its place. With documents, a row may not have seen a key yet.
template <bool kDocuments, int kRowTiles, int kColTiles, int kOutTiles>
__device__ __forceinline__ void add_to_softmax(Sums<kRowTiles, kColTiles>& scores, RowStatistics<kRowTiles>& rows,
                                               Sums<kRowTiles, kOutTiles>& out, float scale_log2) {
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float maximum = rows.maximum[r][half];
#pragma unroll
      for (int n = 0; n < kColTiles; ++n)
        maximum = fmaxf(maximum, fmaxf(scores.c[r][n][2 * half], scores.c[r][n][2 * half + 1]));
      maximum = maximum_of_group(maximum);
      const float subtracted = kDocuments && maximum == -INFINITY ? 0.0f : maximum;
      const float shrink = exp2_approximate((rows.maximum[r][half] - subtracted) * scale_log2);
      const float offset = subtracted * scale_log2;
      float total = rows.total[r][half] * shrink;
#pragma unroll
      for (int n = 0; n < kColTiles; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          scores.c[r][n][e] = exp2_approximate(fmaf(scores.c[r][n][e], scale_log2, -offset));
          total += scores.c[r][n][e];
        }
#pragma unroll
      for (int n = 0; n < kOutTiles; ++n) {
        out.c[r][n][2 * half] *= shrink;
        out.c[r][n][2 * half + 1] *= shrink;
      }
      rows.maximum[r][half] = maximum;
      rows.total[r][half] = total;
    }
}

// Sets dropped probabilities to 0. The factor of those that are kept is applied at the end.
template <int kRowTiles, int kColTiles>
__device__ __forceinline__ void drop(Sums<kRowTiles, kColTiles>& probabilities, const KeptProbabilities<kRowTiles>& kept) {
  probabilities.for_each([&](float& probability, int r, int n, int e) {
    if (!kept.at(r, n, e)) probability = 0;
  });
}

// The first row of this warp in its block. It is computed wherever it is needed, because that is cheaper than keeping it.
template <int kRowTiles>
__device__ __forceinline__ int warp_row() {
  return warp_index() * 16 * kRowTiles;
}

// Divides the sums of this warp's rows by their totals, and stores them and the log-sum-exp of each row. The rows pass through
// those of `queries` that belong to this warp, which no longer needs them.
template <bool kDropout, bool kDocuments, int kQueries, typename T, int D, int kRowTiles>
__device__ __forceinline__ void store(const Arguments<T>& args, const RowStatistics<kRowTiles>& rows,
                                      Sums<kRowTiles, D / 8>& out, SharedTile<T, D> queries) {
  const AttentionSizes& sizes = args.sizes;
  const QueryBlock block(args.order, sizes, kQueries);
  const int first_row = block.first_query + warp_row<kRowTiles>();
  float* log_sum_exp = args.log_sum_exp + (block.sequence * sizes.heads + block.head) * sizes.tokens;
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = sum_of_group(rows.total[r][half]);
      const bool is_padding = kDocuments && total == 0;
      const float inverse = is_padding ? 0.0f : (kDropout ? args.dropout.keep : 1.0f) / total;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) out.c[r][n][2 * half] *= inverse, out.c[r][n][2 * half + 1] *= inverse;
      const int row = first_row + 16 * r + 8 * half + lane_group();
      if (lane_in_group() == 0 && row < sizes.tokens)
        log_sum_exp[row] = is_padding ? 0.0f : rows.maximum[r][half] * args.scale.plain + logf(total);
    }
  T* to = args.out + block.sequence * sizes.tokens * sizes.out_width + block.head * D;
  store_rows(out, 1.0f, queries, warp_row<kRowTiles>(), to, sizes.out_width, first_row, sizes.tokens);
}

template <typename T, int D, bool kDropout, bool kDocuments, typename Divided>
__global__ void __launch_bounds__(Divided::kThreads, Divided::kBlocks) attention_kernel(const Arguments<T> args) {
  constexpr int kQueries = Divided::kQueries, kThreads = Divided::kThreads, kRowTiles = Divided::kRowTiles;
  constexpr int kKeys = Divided::kKeys, kColTiles = kKeys / 8;
  TRIVET_DYNAMIC_SHARED(T, shared);
  const AttentionSizes& sizes = args.sizes;
  const QueryBlock block(args.order, sizes, kQueries);
  if (!args.wanted.any_of(block.first_query, kQueries)) return;
  const T* qkv = args.qkv + block.sequence * sizes.tokens * sizes.qkv_width;
  const SharedTile<T, D> queries{shared};
  const KeyTiles<T, D, kKeys, kThreads> tiles{shared + kQueries * D, qkv, block.group, sizes};
  start_copy<kThreads, kQueries>(queries, qkv + block.head * D, sizes.qkv_width, block.first_query, sizes.tokens);
  const int count = tiles.count(block.first_query + kQueries);
  int begin = 0;
  if constexpr (kDocuments) begin = min(Documents(args, block.sequence).first_key(block.first_query) / kKeys, count - 1);
  tiles.start_copies(begin);

  const auto first_row = [&] { return block.first_query + warp_row<kRowTiles>(); };
  Sums<kRowTiles, D / 8> out;
  out.clear();
  RowStatistics<kRowTiles> rows;
#pragma unroll 1
  for (int tile = begin; tile < count; ++tile) {
    wait_for_tile();
    if (tile + 1 < count) tiles.start_copies(tile + 1);
    const int first_key = tile * kKeys;
    if (first_key >= first_row() + 16 * kRowTiles || first_row() >= sizes.tokens) continue;  // nothing for this warp
    if (kDocuments && Documents(args, block.sequence).first_key(first_row()) >= first_key + kKeys) continue;
    Sums<kRowTiles, kColTiles> scores;
    scores.clear();
    add_product_of_rows(scores, queries, warp_row<kRowTiles>(), tiles.keys(tile), 0);
    hide_later_keys<RowsAre::Queries>(scores, first_row(), first_key);
    if constexpr (kDocuments)
      hide_other_documents<RowsAre::Queries>(scores, Documents(args, block.sequence), first_row(), first_key);
    add_to_softmax<kDocuments>(scores, rows, out, args.scale.log2);
    if constexpr (kDropout) {
      KeptProbabilities<kRowTiles> kept;
      kept.template make<RowsAre::Queries, kColTiles>(HeadDropout(args.dropout, sizes, block.sequence, block.head), first_row(),
                                                      first_key);
      drop(scores, kept);
    }
    add_product(out, scores, tiles.values(tile), 0);
  }
  store<kDropout, kDocuments, kQueries>(args, rows, out, queries);
}

template <typename T, int D, bool kDropout, bool kDocuments>
void start(const Attention& args, const Launch& launch) {
  using Divided = DivisionOf<D, kDropout || kDocuments>;
  constexpr int kQueries = Divided::kQueries;
  const AttentionSizes sizes(args.qkv.shape, args.heads, args.key_value_heads);
  const int64_t key_value_bytes = int64_t{2} * sizes.tokens * D * sizeof(T);
  const BlockOrder order((sizes.tokens + kQueries - 1) / kQueries, sizes.sequences * sizes.heads,
                         key_value_bytes / (sizes.heads / sizes.key_value_heads) + 1);
  const Arguments<T> arguments{static_cast<const T*>(args.qkv.data),
                               static_cast<T*>(args.out.data),
                               static_cast<float*>(args.log_sum_exp.data),
                               sizes,
                               ScoreScale<float>(args),
                               AttentionDropout(args.dropout),
                               order,
                               static_cast<const int32_t*>(args.documents.data),
                               WantedTokens(args.own, sizes.tokens)};
  const int shared_bytes = (kQueries + 4 * Divided::kKeys) * D * static_cast<int>(sizeof(T));
  const auto kernel = &attention_kernel<T, D, kDropout, kDocuments, Divided>;
  trivet::cuda::allow_dynamic_shared(kernel, shared_bytes);
  TRIVET_LAUNCH(kernel, order.blocks(), Divided::kThreads, shared_bytes, launch.stream, arguments);
}

}  // namespace

void compute(const Attention& args, const Launch& launch) {
  if (args.out.elements() == 0) return;
  if (!args.causal || args.hides_early_keys() || args.soft_cap > 0 || (args.dropout.rate > 0 && !args.documents.absent()) ||
      !on_tensor_cores(args.qkv, args.heads, args.key_value_heads, {args.out}))
    return simple_attention(args, launch);
  dispatch_tensor_cores(
      args.qkv, args.heads, args.key_value_heads, args.dropout.rate > 0, !args.documents.absent(),
      [&]<typename T, int D, bool kDropout, bool kDocuments>() { start<T, D, kDropout, kDocuments>(args, launch); });
}

}  // namespace trivet::kernels::cuda
