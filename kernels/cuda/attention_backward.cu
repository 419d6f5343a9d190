// Backward of causal attention on tensor cores. Probabilities are recomputed from the stored log-sum-exp:
//
//   P = exp(Q K^T / sqrt(D) - lse),  dP = dO V^T,  dS = P (dP - sum_d dO O),
//   dV = P^T dO,  dK = dS^T Q / sqrt(D),  dQ = dS K / sqrt(D)
//
// There are two passes. In the first, a block has some keys and sums dK and dV over all queries that see them and over the
// query heads of their group. In the second, a block has some queries and sums dQ. P and dP are computed twice (seven products
// instead of five), but the sums are made in registers in a fixed order, without atomic adds and without partial sums in
// memory. The rows of a warp are keys in the first pass and queries in the second, so that a product finds its operand in the
// registers in which the previous product left it.
#include "core/cuda/launch.h"
#include "kernels/cuda/attention_dispatch.h"
#include "kernels/cuda/attention_dropout.cuh"
#include "kernels/cuda/attention_simple.h"
#include "kernels/cuda/attention_statistics.cuh"
#include "kernels/cuda/attention_tiles.cuh"

namespace trivet::kernels::cuda {
namespace {

template <typename T>
struct Arguments {
  const T *qkv, *dout;
  T* dqkv;
  AttentionStatistics<float> statistics;
  AttentionSizes sizes;
  ScoreScale<float> scale;
  AttentionDropout dropout;
  BlockOrder order;
};

// Scores become probabilities. offset(r, n, e) is that of the query of c[r][n][e].
template <int kRowTiles, int kColTiles, typename Offset>
__device__ __forceinline__ void to_probabilities(Sums<kRowTiles, kColTiles>& scores, float scale_log2, const Offset& offset) {
  scores.for_each(
      [&](float& score, int r, int n, int e) { score = exp2_approximate(fmaf(score, scale_log2, -offset(r, n, e))); });
}

// From here to the end of a tile, a minus sign marks a dropped probability, so that dropout needs no registers of its own.
template <int kRowTiles, int kColTiles>
__device__ __forceinline__ void mark_dropped(Sums<kRowTiles, kColTiles>& probabilities,
                                             const KeptProbabilities<kRowTiles>& kept) {
  probabilities.for_each([&](float& probability, int r, int n, int e) {
    if (!kept.at(r, n, e)) probability = -probability;
  });
}
struct ZeroWhereDropped {
  __device__ __forceinline__ float operator()(float probability) const { return probability < 0 ? 0.0f : probability; }
};

// dP becomes dS (without the factor 1 / sqrt(D)).
template <bool kDropout, int kRowTiles, int kColTiles, typename Delta>
__device__ __forceinline__ void to_score_gradients(Sums<kRowTiles, kColTiles>& dscores,
                                                   const Sums<kRowTiles, kColTiles>& probabilities, const Delta& delta,
                                                   float keep) {
  dscores.for_each([&](float& dscore, int r, int n, int e) {
    const float probability = probabilities.c[r][n][e];
    if constexpr (kDropout) dscore = probability < 0 ? 0.0f : dscore * keep;
    dscore = fabsf(probability) * (dscore - delta(r, n, e));
  });
}

// ---- dK and dV: 128 keys per block; queries come in tiles of 64, of which kStep are in registers at a time.
template <int D>
struct KeyPass {
  static constexpr int kKeys = 128, kQueries = 64;
  static constexpr int kRowTiles = D == 64 ? 2 : 1;  // D / 4 x kRowTiles registers hold dK and dV
  static constexpr int kThreads = kKeys / 16 / kRowTiles * kWarpThreads;
  static constexpr int kStep = D == 64 ? 32 : 64;
  static constexpr int kTileElements = 2 * kQueries * D;     // Q and dO
  static constexpr int kStatisticsBytes = 2 * kQueries * 4;  // offsets and deltas
  static constexpr int kSharedBytes = (2 * kKeys * D + 2 * kTileElements) * 2 + 2 * kStatisticsBytes;
};

template <typename T, int D, bool kDropout>
__global__ void __launch_bounds__(KeyPass<D>::kThreads, D == 64 ? 2 : 1) key_gradients_kernel(const Arguments<T> args) {
  using Pass = KeyPass<D>;
  constexpr int kRowTiles = Pass::kRowTiles, kColTiles = Pass::kStep / 8;
  TRIVET_DYNAMIC_SHARED(T, shared);
  const SharedTile<T, D> keys{shared}, values{shared + Pass::kKeys * D};
  T* stages = shared + 2 * Pass::kKeys * D;
  float* stage_statistics = reinterpret_cast<float*>(stages + 2 * Pass::kTileElements);
  const auto queries = [&](int stage) { return SharedTile<T, D>{stages + stage * Pass::kTileElements}; };
  const auto douts = [&](int stage) { return SharedTile<T, D>{stages + stage * Pass::kTileElements + Pass::kQueries * D}; };

  const AttentionSizes& sizes = args.sizes;
  const KeyBlock block(args.order, sizes, Pass::kKeys);
  const int heads = sizes.heads / sizes.key_value_heads, first_tile = block.first_key / Pass::kQueries;
  const int tiles = (sizes.tokens + Pass::kQueries - 1) / Pass::kQueries - first_tile;
  const T* qkv = args.qkv + block.sequence * sizes.tokens * sizes.qkv_width;
  const T* dout = args.dout + block.sequence * sizes.tokens * sizes.out_width;

  const auto start_tile = [&](int head, int first_query, int stage) {
    start_copy<Pass::kThreads, Pass::kQueries>(queries(stage), qkv + head * D, sizes.qkv_width, first_query, sizes.tokens);
    start_copy<Pass::kThreads, Pass::kQueries>(douts(stage), dout + head * D, sizes.out_width, first_query, sizes.tokens);
    constexpr int kChunks = Pass::kQueries / 4;  // of 16 bytes: offsets, then deltas
    const int64_t row = args.statistics.first_row(block.sequence, sizes.heads, head) + first_query;
    const int index = thread_index();
    if (index < 2 * kChunks)
      cp_async_16(stage_statistics + stage * 2 * Pass::kQueries + index * 4,
                  (index < kChunks ? args.statistics.offsets : args.statistics.deltas) + row + index % kChunks * 4, true);
    cp_async_commit();
  };
  const T* from = qkv + (sizes.heads + block.group) * D;
  start_copy<Pass::kThreads, Pass::kKeys>(keys, from, sizes.qkv_width, block.first_key, sizes.tokens);
  start_copy<Pass::kThreads, Pass::kKeys>(values, from + sizes.key_value_heads * D, sizes.qkv_width, block.first_key,
                                          sizes.tokens);
  int head = block.first_head, tile = 0;  // of the tile that is copied next
  const auto start_next_tile = [&](int stage) {
    start_tile(head, (first_tile + tile) * Pass::kQueries, stage);
    if (++tile == tiles) tile = 0, ++head;
  };
  start_next_tile(0);

  const int warp_row = warp_index() * 16 * kRowTiles, first_row = block.first_key + warp_row,
            last_row = first_row + 16 * kRowTiles - 1;
  Sums<kRowTiles, D / 8> dkeys, dvalues;
  dkeys.clear();
  dvalues.clear();

  const int steps = heads * tiles;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<0>();
    __syncthreads();  // this tile has arrived, and nobody still reads the previous one, which the next one overwrites
    const int stage = step % 2, this_head = block.first_head + step / tiles;
    const int first_of_tile = (first_tile + step % tiles) * Pass::kQueries;
    if (step + 1 < steps) start_next_tile(1 - stage);
#pragma unroll 1
    for (int part = 0; part < Pass::kQueries; part += Pass::kStep) {
      const int first_query = first_of_tile + part;
      if (first_query + Pass::kStep - 1 < first_row || first_query >= sizes.tokens) continue;  // sees none of this warp's keys
      const float* offsets = stage_statistics + stage * 2 * Pass::kQueries + part;
      const float* deltas = offsets + Pass::kQueries;
      const auto of_query = [col = 2 * lane_in_group()](const float* numbers, int n, int e) {
        const float2 pair = *reinterpret_cast<const float2*>(numbers + 8 * n + col);
        return e % 2 == 0 ? pair.x : pair.y;
      };

      KeptProbabilities<kRowTiles> kept;
      if constexpr (kDropout)
        kept.template make<RowsAre::Keys, kColTiles>(HeadDropout(args.dropout, sizes, block.sequence, this_head), first_row,
                                                     first_query);
      Sums<kRowTiles, kColTiles> probabilities, dscores;
      probabilities.clear();
      add_product_of_rows(probabilities, keys, warp_row, queries(stage), part);
      if (first_query < last_row) hide_later_keys<RowsAre::Keys>(probabilities, first_row, first_query);
      to_probabilities(probabilities, args.scale.log2, [&](int, int n, int e) { return of_query(offsets, n, e); });
      if constexpr (kDropout) {
        mark_dropped(probabilities, kept);
        add_product(dvalues, probabilities, douts(stage), part, ZeroWhereDropped{});
      } else {
        add_product(dvalues, probabilities, douts(stage), part);
      }
      dscores.clear();
      add_product_of_rows(dscores, values, warp_row, douts(stage), part);
      to_score_gradients<kDropout>(
          dscores, probabilities, [&](int, int n, int e) { return of_query(deltas, n, e); }, args.dropout.keep);
      add_product(dkeys, dscores, queries(stage), part);
    }
  }

  const KeyBlock same(args.order, sizes, Pass::kKeys);
  T* to = args.dqkv + same.sequence * sizes.tokens * sizes.qkv_width + (sizes.heads + same.group) * D;
  store_rows(dkeys, args.scale.plain, keys, warp_row, to, sizes.qkv_width, first_row, sizes.tokens);
  store_rows(dvalues, kDropout ? args.dropout.keep : 1.0f, values, warp_row, to + sizes.key_value_heads * D, sizes.qkv_width,
             first_row, sizes.tokens);
}

// ---- dQ: 128 queries per block; keys and values come in tiles of kKeys.
template <int D>
struct QueryPass {
  static constexpr int kQueries = 128, kThreads = 128, kRowTiles = 2;
  static constexpr int kKeys = D == 64 ? 64 : 32;
  static constexpr int kSharedBytes = (2 * kQueries + 4 * kKeys) * D * 2;
};

template <typename T, int D, bool kDropout>
__global__ void __launch_bounds__(QueryPass<D>::kThreads, 2) query_gradients_kernel(const Arguments<T> args) {
  using Pass = QueryPass<D>;
  constexpr int kRowTiles = Pass::kRowTiles, kColTiles = Pass::kKeys / 8;
  TRIVET_DYNAMIC_SHARED(T, shared);
  const SharedTile<T, D> queries{shared}, douts{shared + Pass::kQueries * D};
  T* stages = shared + 2 * Pass::kQueries * D;
  const auto keys = [&](int stage) { return SharedTile<T, D>{stages + stage * 2 * Pass::kKeys * D}; };
  const auto values = [&](int stage) { return SharedTile<T, D>{stages + (stage * 2 + 1) * Pass::kKeys * D}; };

  const AttentionSizes& sizes = args.sizes;
  const QueryBlock block(args.order, sizes, Pass::kQueries);
  const int tiles = (min(block.first_query + Pass::kQueries, sizes.tokens) + Pass::kKeys - 1) / Pass::kKeys;
  const T* qkv = args.qkv + block.sequence * sizes.tokens * sizes.qkv_width;
  const T* dout = args.dout + block.sequence * sizes.tokens * sizes.out_width + block.head * D;
  const auto start_tile = [&](int tile) {
    const T* from = qkv + (sizes.heads + block.group) * D;
    start_copy<Pass::kThreads, Pass::kKeys>(keys(tile % 2), from, sizes.qkv_width, tile * Pass::kKeys, sizes.tokens);
    start_copy<Pass::kThreads, Pass::kKeys>(values(tile % 2), from + sizes.key_value_heads * D, sizes.qkv_width,
                                            tile * Pass::kKeys, sizes.tokens);
    cp_async_commit();
  };
  start_copy<Pass::kThreads, Pass::kQueries>(queries, qkv + block.head * D, sizes.qkv_width, block.first_query, sizes.tokens);
  start_copy<Pass::kThreads, Pass::kQueries>(douts, dout, sizes.out_width, block.first_query, sizes.tokens);
  start_tile(0);

  const int warp_row = warp_index() * 16 * kRowTiles, first_row = block.first_query + warp_row,
            last_row = first_row + 16 * kRowTiles - 1;
  float offsets[kRowTiles][2], deltas[kRowTiles][2];
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t row =
          args.statistics.first_row(block.sequence, sizes.heads, block.head) + first_row + 16 * r + 8 * half + lane_group();
      offsets[r][half] = args.statistics.offsets[row];
      deltas[r][half] = args.statistics.deltas[row];
    }
  Sums<kRowTiles, D / 8> dqueries;
  dqueries.clear();

#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    cp_async_wait<0>();
    __syncthreads();  // this tile has arrived, and nobody still reads the previous one, which the next one overwrites
    if (tile + 1 < tiles) start_tile(tile + 1);
    const int first_key = tile * Pass::kKeys;
    if (first_key > last_row || first_row >= sizes.tokens) continue;  // nothing for this warp
    KeptProbabilities<kRowTiles> kept;
    if constexpr (kDropout)
      kept.template make<RowsAre::Queries, kColTiles>(HeadDropout(args.dropout, sizes, block.sequence, block.head), first_row,
                                                      first_key);
    Sums<kRowTiles, kColTiles> probabilities, dscores;
    probabilities.clear();
    add_product_of_rows(probabilities, queries, warp_row, keys(tile % 2), 0);
    if (first_key + Pass::kKeys - 1 > first_row) hide_later_keys<RowsAre::Queries>(probabilities, first_row, first_key);
    to_probabilities(probabilities, args.scale.log2, [&](int r, int, int e) { return offsets[r][e / 2]; });
    if constexpr (kDropout) mark_dropped(probabilities, kept);
    dscores.clear();
    add_product_of_rows(dscores, douts, warp_row, values(tile % 2), 0);
    to_score_gradients<kDropout>(
        dscores, probabilities, [&](int r, int, int e) { return deltas[r][e / 2]; }, args.dropout.keep);
    add_product(dqueries, dscores, keys(tile % 2), 0);
  }

  const QueryBlock same(args.order, sizes, Pass::kQueries);
  T* to = args.dqkv + same.sequence * sizes.tokens * sizes.qkv_width + same.head * D;
  store_rows(dqueries, args.scale.plain, queries, warp_row, to, sizes.qkv_width, first_row, sizes.tokens);
}

template <typename T, int D, bool kDropout>
void start(const AttentionBackward& args, const Launch& launch) {
  const AttentionSizes sizes(args.qkv.shape, args.heads, args.key_value_heads);
  const int64_t head_bytes = int64_t{2} * sizes.tokens * D * sizeof(T), heads_of_group = sizes.heads / sizes.key_value_heads;
  const auto tiles = [&](int rows) { return (sizes.tokens + rows - 1) / rows; };
  Arguments<T> arguments{
      static_cast<const T*>(args.qkv.data),
      static_cast<const T*>(args.dout.data),
      static_cast<T*>(args.dqkv.data),
      start_statistics<T, float, 8>(args, sizes, launch),
      sizes,
      ScoreScale<float>(D),
      AttentionDropout(args.dropout),
      BlockOrder(tiles(KeyPass<D>::kKeys), sizes.sequences * sizes.key_value_heads, head_bytes * heads_of_group)};

  trivet::cuda::allow_dynamic_shared(key_gradients_kernel<T, D, kDropout>, KeyPass<D>::kSharedBytes);
  TRIVET_LAUNCH((key_gradients_kernel<T, D, kDropout>), arguments.order.blocks(), KeyPass<D>::kThreads,
                KeyPass<D>::kSharedBytes, launch.stream, arguments);

  arguments.order = BlockOrder(tiles(QueryPass<D>::kQueries), sizes.sequences * sizes.heads, head_bytes / heads_of_group + 1);
  trivet::cuda::allow_dynamic_shared(query_gradients_kernel<T, D, kDropout>, QueryPass<D>::kSharedBytes);
  TRIVET_LAUNCH((query_gradients_kernel<T, D, kDropout>), arguments.order.blocks(), QueryPass<D>::kThreads,
                QueryPass<D>::kSharedBytes, launch.stream, arguments);
}

}  // namespace

void compute(const AttentionBackward& args, const Launch& launch) {
  if (args.dout.elements() == 0) return;
  if (!on_tensor_cores(args.qkv, args.heads, args.key_value_heads, {args.dout, args.out, args.dqkv}))
    return simple_attention_backward(args, launch);
  dispatch_tensor_cores(args.qkv, args.heads, args.key_value_heads, args.dropout.rate > 0,
                        [&]<typename T, int D, bool kDropout>() { start<T, D, kDropout>(args, launch); });
}

}  // namespace trivet::kernels::cuda
