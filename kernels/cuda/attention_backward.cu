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
  const int32_t* documents;
  WantedTokens wanted;
};

// Offsets and deltas of queries that are rows: each lane keeps those of its rows g and g + 8.
template <int kRowTiles>
struct StatisticsOfRows {
  float offsets[kRowTiles][2], deltas[kRowTiles][2];

  __device__ __forceinline__ StatisticsOfRows(const AttentionStatistics<float>& statistics, int64_t first_row) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t row = first_row + 16 * r + 8 * half + lane_group();
        offsets[r][half] = statistics.offsets[row];
        deltas[r][half] = statistics.deltas[row];
      }
  }
  // Return the statistics of the query of c[r][n][e].
  __device__ __forceinline__ float offset(int r, int, int e) const { return offsets[r][e / 2]; }
  __device__ __forceinline__ float delta(int r, int, int e) const { return deltas[r][e / 2]; }
};

// Offsets and deltas of queries that are columns: they stay in shared memory.
struct StatisticsOfCols {
  const float *offsets, *deltas;
  int col_of_lane = 2 * lane_in_group();

  __device__ __forceinline__ float offset(int, int n, int e) const { return at(offsets, n, e); }
  __device__ __forceinline__ float delta(int, int n, int e) const { return at(deltas, n, e); }
  __device__ __forceinline__ float at(const float* numbers, int n, int e) const {
    const float2 pair = *reinterpret_cast<const float2*>(numbers + 8 * n + col_of_lane);
    return e % 2 == 0 ? pair.x : pair.y;
  }
};

// Scores become probabilities.
template <int kRowTiles, int kColTiles, typename Statistics>
__device__ __forceinline__ void to_probabilities(Sums<kRowTiles, kColTiles>& scores, float scale_log2,
                                                 const Statistics& statistics) {
  scores.for_each([&](float& score, int r, int n, int e) {
    score = exp2_approximate(fmaf(score, scale_log2, -statistics.offset(r, n, e)));
  });
}

// From here to the end of a tile, a minus sign marks a dropped probability, so that dropout needs no registers of its own.
template <int kRowTiles, int kColTiles>
__device__ __forceinline__ void mark_dropped(Sums<kRowTiles, kColTiles>& probabilities,
                                             const KeptProbabilities<kRowTiles>& kept) {
  probabilities.for_each([&](float& probability, int r, int n, int e) {
    if (!kept.at(r, n, e)) probability = -probability;
  });
}
template <bool kDropout>
struct ZeroWhereDropped {
  __device__ __forceinline__ float operator()(float probability) const {
    return kDropout && probability < 0 ? 0.0f : probability;
  }
};

// dP becomes dS (without the factor 1 / sqrt(D)).
template <bool kDropout, int kRowTiles, int kColTiles, typename Statistics>
__device__ __forceinline__ void to_score_gradients(Sums<kRowTiles, kColTiles>& dscores,
                                                   const Sums<kRowTiles, kColTiles>& probabilities,
                                                   const Statistics& statistics, float keep) {
  dscores.for_each([&](float& dscore, int r, int n, int e) {
    const float probability = probabilities.c[r][n][e];
    if constexpr (kDropout) dscore = probability < 0 ? 0.0f : dscore * keep;
    dscore = fabsf(probability) * (dscore - statistics.delta(r, n, e));
  });
}

// Two matrices in shared memory that a warp multiplies: its own rows, from own_row on, and partners, from first_partner on.
template <typename T, int D>
struct Operands {
  SharedTile<T, D> own;
  int own_row;
  SharedTile<T, D> partners;
  int first_partner;
};

// The matrices that both passes compute for a warp's rows and some of their partners: probabilities and the gradients
// of scores. first_row and first_col are tokens.
template <typename T, RowsAre kRows, bool kDropout, bool kDocuments, int kRowTiles, int kColTiles>
struct ScoreTile {
  const Arguments<T>& args;
  int64_t sequence;
  int head, first_row, first_col;
  Sums<kRowTiles, kColTiles> probabilities, dscores;

  // x: the queries and the keys
  template <int D, typename Statistics>
  __device__ __forceinline__ void recompute_probabilities(const Operands<T, D>& x, const Statistics& statistics) {
    KeptProbabilities<kRowTiles> kept;
    if constexpr (kDropout)
      kept.template make<kRows, kColTiles>(HeadDropout(args.dropout, args.sizes, sequence, head), first_row, first_col);
    probabilities.clear();
    add_product_of_rows(probabilities, x.own, x.own_row, x.partners, x.first_partner);
    hide_later_keys<kRows>(probabilities, first_row, first_col);
    if constexpr (kDocuments) hide_other_documents<kRows>(probabilities, Documents(args, sequence), first_row, first_col);
    to_probabilities(probabilities, args.scale.log2, statistics);
    if constexpr (kDropout) mark_dropped(probabilities, kept);
  }
  // y: rows of dO and the values
  template <int D, typename Statistics>
  __device__ __forceinline__ void compute_score_gradients(const Operands<T, D>& y, const Statistics& statistics) {
    dscores.clear();
    add_product_of_rows(dscores, y.own, y.own_row, y.partners, y.first_partner);
    to_score_gradients<kDropout>(dscores, probabilities, statistics, args.dropout.keep);
  }
};

// ---- dK and dV: a block has kKeys keys; queries come in tiles of 64, of which kStep are in registers at a time.
template <int D, int kKeysOfBlock, int kWarps, int kQueriesAtOnce, int kBlocksAtATime>
struct KeyPass {
  static constexpr int kKeys = kKeysOfBlock, kQueries = 64, kBlocks = kBlocksAtATime;
  static constexpr int kRowTiles = kKeys / 16 / kWarps;  // D / 4 x kRowTiles registers hold dK and dV
  static constexpr int kThreads = kWarps * kWarpThreads;
  static constexpr int kStep = kQueriesAtOnce;
  static constexpr int kTileElements = 2 * kQueries * D;     // Q and dO
  static constexpr int kStatisticsBytes = 2 * kQueries * 4;  // offsets and deltas
  static constexpr int kSharedBytes = (2 * kKeys * D + 2 * kTileElements) * 2 + 2 * kStatisticsBytes;
};
// With D = 64, on an H200, 64 keys per block are 1.03 to 1.12 times as fast as 128 for 1,024 tokens, and 0.97 times for 4,096.
template <int D, bool kDropoutOrDocuments>
using KeyPassOf =
    std::conditional_t<D != 64, KeyPass<D, 128, 8, 64, 1>,
                       std::conditional_t<kDropoutOrDocuments, KeyPass<D, 128, 4, 32, 2>, KeyPass<D, 64, 4, 64, 3>>>;

// The queries that see the keys of a block, with their rows of dO and their statistics. They come into shared memory in tiles
// of kQueries, head by head. There is room for two tiles, called stages 0 and 1: while one is used, the next one is copied.
template <typename T, int D, bool kDocuments, typename Pass>
struct QueryTiles {
  const Arguments<T>& args;
  const KeyBlock& block;
  T* stages;
  float* statistics;
  int first_tile, tiles_of_head;  // queries in earlier tiles see none of the block's keys
  int next_head, next_tile = 0;   // the tile that is copied next

  __device__ __forceinline__ QueryTiles(const Arguments<T>& arguments, const KeyBlock& key_block, T* shared)
      : args(arguments),
        block(key_block),
        stages(shared),
        statistics(reinterpret_cast<float*>(stages + 2 * Pass::kTileElements)),
        first_tile(block.first_key / Pass::kQueries),
        tiles_of_head((args.sizes.tokens + Pass::kQueries - 1) / Pass::kQueries - first_tile),
        next_head(block.first_head) {
    if constexpr (kDocuments) {  // later documents see none of the block's keys; one tile remains for padding
      const Documents documents(args, block.sequence);
      int tiles = 1;
      while (tiles < tiles_of_head &&
             documents.first_key((first_tile + tiles) * Pass::kQueries) < block.first_key + Pass::kKeys)
        ++tiles;
      tiles_of_head = tiles;
    }
  }

  __device__ __forceinline__ SharedTile<T, D> queries(int stage) const { return {stages + stage * Pass::kTileElements}; }
  __device__ __forceinline__ SharedTile<T, D> douts(int stage) const {
    return {stages + stage * Pass::kTileElements + Pass::kQueries * D};
  }
  // Returns the statistics of the tile's queries from `first` on.
  __device__ __forceinline__ StatisticsOfCols statistics_of(int stage, int first) const {
    const float* offsets = statistics + stage * 2 * Pass::kQueries + first;
    return {offsets, offsets + Pass::kQueries};
  }

  __device__ __forceinline__ void start_next_copies(int stage) {
    const AttentionSizes& sizes = args.sizes;
    const int first_query = (first_tile + next_tile) * Pass::kQueries;
    const T* qkv = args.qkv + block.sequence * sizes.tokens * sizes.qkv_width;
    const T* dout = args.dout + block.sequence * sizes.tokens * sizes.out_width;
    start_copy<Pass::kThreads, Pass::kQueries>(queries(stage), qkv + next_head * D, sizes.qkv_width, first_query, sizes.tokens);
    start_copy<Pass::kThreads, Pass::kQueries>(douts(stage), dout + next_head * D, sizes.out_width, first_query, sizes.tokens);
    constexpr int kChunks = Pass::kQueries / 4;  // chunks of 16 bytes: offsets, then deltas
    const int64_t row = args.statistics.first_row(block.sequence, sizes.heads, next_head) + first_query;
    const int index = thread_index();
    if (index < 2 * kChunks)
      cp_async_16(statistics + stage * 2 * Pass::kQueries + index * 4,
                  (index < kChunks ? args.statistics.offsets : args.statistics.deltas) + row + index % kChunks * 4, true);
    cp_async_commit();
    if (++next_tile == tiles_of_head) next_tile = 0, ++next_head;
  }
};

template <typename T, int D, bool kDropout, bool kDocuments, typename Pass>
__global__ void __launch_bounds__(Pass::kThreads, Pass::kBlocks) key_gradients_kernel(const Arguments<T> args) {
  constexpr int kRowTiles = Pass::kRowTiles;
  TRIVET_DYNAMIC_SHARED(T, shared);
  const AttentionSizes& sizes = args.sizes;
  const KeyBlock block(args.order, sizes, Pass::kKeys);
  if (!args.wanted.any_of(block.first_key, Pass::kKeys)) return;
  const SharedTile<T, D> keys{shared}, values{shared + Pass::kKeys * D};
  QueryTiles<T, D, kDocuments, Pass> tiles(args, block, shared + 2 * Pass::kKeys * D);
  const T* from = args.qkv + block.sequence * sizes.tokens * sizes.qkv_width + (sizes.heads + block.group) * D;
  start_copy<Pass::kThreads, Pass::kKeys>(keys, from, sizes.qkv_width, block.first_key, sizes.tokens);
  start_copy<Pass::kThreads, Pass::kKeys>(values, from + sizes.key_value_heads * D, sizes.qkv_width, block.first_key,
                                          sizes.tokens);
  tiles.start_next_copies(0);

  const int warp_row = warp_index() * 16 * kRowTiles, first_row = block.first_key + warp_row;
  Sums<kRowTiles, D / 8> dkeys, dvalues;
  dkeys.clear();
  dvalues.clear();
  const int steps = sizes.heads / sizes.key_value_heads * tiles.tiles_of_head;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    wait_for_tile();
    const int stage = step % 2, head = block.first_head + step / tiles.tiles_of_head;
    const int first_of_tile = (tiles.first_tile + step % tiles.tiles_of_head) * Pass::kQueries;
    if (step + 1 < steps) tiles.start_next_copies(1 - stage);
#pragma unroll 1
    for (int part = 0; part < Pass::kQueries; part += Pass::kStep) {
      const int first_query = first_of_tile + part;
      if (first_query + Pass::kStep - 1 < first_row || first_query >= sizes.tokens) continue;  // sees none of this warp's keys
      if (kDocuments && Documents(args, block.sequence).first_key(first_query) >= first_row + 16 * kRowTiles) continue;
      const StatisticsOfCols statistics = tiles.statistics_of(stage, part);
      ScoreTile<T, RowsAre::Keys, kDropout, kDocuments, kRowTiles, Pass::kStep / 8> tile{args, block.sequence, head, first_row,
                                                                                         first_query};
      tile.recompute_probabilities(Operands<T, D>{keys, warp_row, tiles.queries(stage), part}, statistics);
      add_product(dvalues, tile.probabilities, tiles.douts(stage), part, ZeroWhereDropped<kDropout>{});
      tile.compute_score_gradients(Operands<T, D>{values, warp_row, tiles.douts(stage), part}, statistics);
      add_product(dkeys, tile.dscores, tiles.queries(stage), part);
    }
  }

  const KeyBlock same(args.order, sizes, Pass::kKeys);
  T* to = args.dqkv + same.sequence * sizes.tokens * sizes.qkv_width + (sizes.heads + same.group) * D;
  store_rows(dkeys, args.scale.plain, keys, warp_row, to, sizes.qkv_width, first_row, sizes.tokens);
  store_rows(dvalues, kDropout ? args.dropout.keep : 1.0f, values, warp_row, to + sizes.key_value_heads * D, sizes.qkv_width,
             first_row, sizes.tokens);
}

// ---- dQ: 128 queries per block; keys and values come in tiles of kKeys.
template <int D, int kQueriesOfBlock, int kWarps, int kKeysOfTile, int kBlocksAtATime>
struct QueryPass {
  static constexpr int kQueries = kQueriesOfBlock, kThreads = kWarps * kWarpThreads, kRowTiles = kQueries / 16 / kWarps;
  static constexpr int kKeys = kKeysOfTile, kBlocks = kBlocksAtATime;
  static constexpr int kSharedBytes = (2 * kQueries + 4 * kKeys) * D * 2;
};
template <int D>
using QueryPassOf = QueryPass<D, 128, 4, D == 64 ? 64 : 32, 2>;

template <typename T, int D, bool kDropout, bool kDocuments, typename Pass>
__global__ void __launch_bounds__(Pass::kThreads, Pass::kBlocks) query_gradients_kernel(const Arguments<T> args) {
  constexpr int kRowTiles = Pass::kRowTiles;
  TRIVET_DYNAMIC_SHARED(T, shared);
  const AttentionSizes& sizes = args.sizes;
  const QueryBlock block(args.order, sizes, Pass::kQueries);
  if (!args.wanted.any_of(block.first_query, Pass::kQueries)) return;
  const T* qkv = args.qkv + block.sequence * sizes.tokens * sizes.qkv_width;
  const T* dout = args.dout + block.sequence * sizes.tokens * sizes.out_width + block.head * D;
  const SharedTile<T, D> queries{shared}, douts{shared + Pass::kQueries * D};
  const KeyTiles<T, D, Pass::kKeys, Pass::kThreads> tiles{shared + 2 * Pass::kQueries * D, qkv, block.group, sizes};
  start_copy<Pass::kThreads, Pass::kQueries>(queries, qkv + block.head * D, sizes.qkv_width, block.first_query, sizes.tokens);
  start_copy<Pass::kThreads, Pass::kQueries>(douts, dout, sizes.out_width, block.first_query, sizes.tokens);
  const int count = tiles.count(block.first_query + Pass::kQueries);
  int begin = 0;
  if constexpr (kDocuments) begin = min(Documents(args, block.sequence).first_key(block.first_query) / Pass::kKeys, count - 1);
  tiles.start_copies(begin);

  const int warp_row = warp_index() * 16 * kRowTiles, first_row = block.first_query + warp_row,
            last_row = first_row + 16 * kRowTiles - 1;
  const StatisticsOfRows<kRowTiles> statistics(args.statistics,
                                               args.statistics.first_row(block.sequence, sizes.heads, block.head) + first_row);
  Sums<kRowTiles, D / 8> dqueries;
  dqueries.clear();
#pragma unroll 1
  for (int i = begin; i < count; ++i) {
    wait_for_tile();
    if (i + 1 < count) tiles.start_copies(i + 1);
    const int first_key = i * Pass::kKeys;
    if (first_key > last_row || first_row >= sizes.tokens) continue;  // nothing for this warp
    if (kDocuments && Documents(args, block.sequence).first_key(first_row) >= first_key + Pass::kKeys) continue;
    ScoreTile<T, RowsAre::Queries, kDropout, kDocuments, kRowTiles, Pass::kKeys / 8> tile{args, block.sequence, block.head,
                                                                                          first_row, first_key};
    tile.recompute_probabilities(Operands<T, D>{queries, warp_row, tiles.keys(i), 0}, statistics);
    tile.compute_score_gradients(Operands<T, D>{douts, warp_row, tiles.values(i), 0}, statistics);
    add_product(dqueries, tile.dscores, tiles.keys(i), 0);
  }

  const QueryBlock same(args.order, sizes, Pass::kQueries);
  T* to = args.dqkv + same.sequence * sizes.tokens * sizes.qkv_width + same.head * D;
  store_rows(dqueries, args.scale.plain, queries, warp_row, to, sizes.qkv_width, first_row, sizes.tokens);
}

template <typename T, int D, bool kDropout, bool kDocuments, typename Pass>
void start_key_pass(Arguments<T> arguments, const Launch& launch) {
  const AttentionSizes& sizes = arguments.sizes;
  const int64_t head_bytes = int64_t{2} * sizes.tokens * D * sizeof(T);
  arguments.order = BlockOrder((sizes.tokens + Pass::kKeys - 1) / Pass::kKeys, sizes.sequences * sizes.key_value_heads,
                               head_bytes * (sizes.heads / sizes.key_value_heads));
  const auto kernel = &key_gradients_kernel<T, D, kDropout, kDocuments, Pass>;
  trivet::cuda::allow_dynamic_shared(kernel, Pass::kSharedBytes);
  TRIVET_LAUNCH(kernel, arguments.order.blocks(), Pass::kThreads, Pass::kSharedBytes, launch.stream, arguments);
}

template <typename T, int D, bool kDropout, bool kDocuments, typename Pass>
void start_query_pass(Arguments<T> arguments, const Launch& launch) {
  const AttentionSizes& sizes = arguments.sizes;
  const int64_t head_bytes = int64_t{2} * sizes.tokens * D * sizeof(T);
  arguments.order = BlockOrder((sizes.tokens + Pass::kQueries - 1) / Pass::kQueries, sizes.sequences * sizes.heads,
                               head_bytes / (sizes.heads / sizes.key_value_heads) + 1);
  const auto kernel = &query_gradients_kernel<T, D, kDropout, kDocuments, Pass>;
  trivet::cuda::allow_dynamic_shared(kernel, Pass::kSharedBytes);
  TRIVET_LAUNCH(kernel, arguments.order.blocks(), Pass::kThreads, Pass::kSharedBytes, launch.stream, arguments);
}

template <typename T, int D, bool kDropout, bool kDocuments>
void start(const AttentionBackward& args, const Launch& launch) {
  const AttentionSizes sizes(args.qkv.shape, args.heads, args.key_value_heads);
  const Arguments<T> arguments{static_cast<const T*>(args.qkv.data),
                               static_cast<const T*>(args.dout.data),
                               static_cast<T*>(args.dqkv.data),
                               start_statistics<T, float, 8>(args, sizes, launch),
                               sizes,
                               ScoreScale<float>(args),
                               AttentionDropout(args.dropout),
                               BlockOrder(1, 1, 1),
                               static_cast<const int32_t*>(args.documents.data),
                               WantedTokens(args.own, sizes.tokens)};
  start_key_pass<T, D, kDropout, kDocuments, KeyPassOf<D, kDropout || kDocuments>>(arguments, launch);
  start_query_pass<T, D, kDropout, kDocuments, QueryPassOf<D>>(arguments, launch);
}

}  // namespace

void compute(const AttentionBackward& args, const Launch& launch) {
  if (args.dout.elements() == 0) return;
  if (!args.causal || args.hides_early_keys() || args.soft_cap > 0 || (args.dropout.rate > 0 && !args.documents.absent()) ||
      !on_tensor_cores(args.qkv, args.heads, args.key_value_heads, {args.dout, args.out, args.dqkv}))
    return simple_attention_backward(args, launch);
  dispatch_tensor_cores(
      args.qkv, args.heads, args.key_value_heads, args.dropout.rate > 0, !args.documents.absent(),
      [&]<typename T, int D, bool kDropout, bool kDocuments>() { start<T, D, kDropout, kDocuments>(args, launch); });
}

}  // namespace trivet::kernels::cuda
