// Shared by attention's kernels for tensor cores: tiles in shared memory, products of a warp's rows, what queries see. T is
// __nv_bfloat16 or __half. See tensor_core.cuh for g, t and for how a warp holds matrices.
#pragma once

#include "kernels/cuda/attention_blocks.cuh"

namespace trivet::kernels::cuda {

__device__ __forceinline__ int lane_group() { return lane_index() / 4; }     // g
__device__ __forceinline__ int lane_in_group() { return lane_index() % 4; }  // t

// Rows of D numbers in shared memory. The 16-byte chunks of a row are permuted, differently for each of eight consecutive rows,
// so that the same chunk of eight rows is in eight different groups of four banks, and neither ldmatrix nor copies have bank
// conflicts.
template <typename T, int D>
struct SharedTile {
  static constexpr int kChunks = D / 8;                  // 8, 12 or 16
  static constexpr int kPermuted = D % 64 == 0 ? 8 : 4;  // chunks that change places among themselves

  T* data;

  static __device__ __forceinline__ int permutation(int row) {
    return kPermuted == 8 ? row % 8 : row / 2 % 4;  // rows of 192 bytes start at bank 0 and 16 in turn
  }
  __device__ __forceinline__ T* chunk(int row, int index) const {
    return data + row * D + (index / kPermuted * kPermuted + (index % kPermuted ^ permutation(row))) * 8;
  }
};

// Rows that a lane reads from a tile with ldmatrix; neighbouring chunks belong to two lanes. Made once, so that the
// address of a matrix takes one exclusive or, which also serves all matrices that are multiples of eight rows below.
template <typename T, int D>
struct LaneRows {
  using Tile = SharedTile<T, D>;

  const T* row;
  int place;  // place of the lane's chunk among those that change places

  __device__ __forceinline__ LaneRows(Tile tile, int lane_row, int odd)
      : row(tile.data + lane_row * D), place(odd ^ Tile::permutation(lane_row)) {}

  // The address of chunk `even` or, if `odd` is 1, the one after it, `rows` rows further down. Both are known at compile time;
  // rows is a multiple of 8.
  __device__ __forceinline__ const T* at(int rows, int even) const {
    return row + rows * D + even / Tile::kPermuted * Tile::kPermuted * 8 + (even % Tile::kPermuted ^ place) * 8;
  }
};

// Lanes in the order that ldmatrix requires, for four matrices: the second one is below the first in rows_then_cols, and beside
// it in cols_then_rows.
template <typename T, int D>
__device__ __forceinline__ LaneRows<T, D> rows_then_cols(SharedTile<T, D> tile, int first_row) {
  return {tile, first_row + lane_index() % 16, lane_index() / 16};
}
template <typename T, int D>
__device__ __forceinline__ LaneRows<T, D> cols_then_rows(SharedTile<T, D> tile, int first_row) {
  return {tile, first_row + lane_index() % 8 + lane_index() / 16 * 8, lane_index() / 8 % 2};
}

// Starts to copy kRows rows of a matrix, from row `first` on, into a tile. Rows at and after `rows` become zeros: what a
// product multiplies with a probability of 0 must be finite.
template <int kThreads, int kRows, typename T, int D>
__device__ __forceinline__ void start_copy(SharedTile<T, D> to, const T* from, int64_t stride, int first, int rows) {
  constexpr int kChunks = SharedTile<T, D>::kChunks;
  constexpr int kRowsAtOnce = kThreads / kChunks / 8 * 8;  // so that a thread's rows have the same permutation
  static_assert(kRows % kRowsAtOnce == 0);
  const int row = first + thread_index() / kChunks, index = thread_index() % kChunks;
  if (kRowsAtOnce * kChunks < kThreads && row >= first + kRowsAtOnce) return;
  T* place = to.chunk(row - first, index);
  const T* source = from + row * stride + index * 8;
#pragma unroll
  for (int i = 0; i < kRows; i += kRowsAtOnce, source += kRowsAtOnce * stride) {
    const bool valid = row + i < rows;
    cp_async_16(place + i * D, valid ? source : from, valid);
  }
}

// Waits until the tile whose copy was started last has arrived, and until nobody still reads the previous one, which the next
// one overwrites.
__device__ __forceinline__ void wait_for_tile() {
  cp_async_wait<0>();
  __syncthreads();
}

// The keys and values of a group, which come into shared memory in tiles of kKeys. There is room for two tiles: while one is
// used, the next one is copied.
template <typename T, int D, int kKeys, int kThreads>
struct KeyTiles {
  T* data;
  const T* qkv;  // the rows of this sequence
  int group;
  const AttentionSizes& sizes;

  // The number of tiles that queries before end_query see.
  __device__ __forceinline__ int count(int end_query) const { return (min(end_query, sizes.tokens) + kKeys - 1) / kKeys; }

  __device__ __forceinline__ SharedTile<T, D> keys(int tile) const { return {data + tile % 2 * 2 * kKeys * D}; }
  __device__ __forceinline__ SharedTile<T, D> values(int tile) const { return {data + (tile % 2 * 2 + 1) * kKeys * D}; }

  __device__ __forceinline__ void start_copies(int tile) const {
    const T* from = qkv + (sizes.heads + group) * D;
    start_copy<kThreads, kKeys>(keys(tile), from, sizes.qkv_width, tile * kKeys, sizes.tokens);
    start_copy<kThreads, kKeys>(values(tile), from + sizes.key_value_heads * D, sizes.qkv_width, tile * kKeys, sizes.tokens);
    cp_async_commit();
  }
};

// Sums of a warp: kRowTiles x kColTiles matrices C.
template <int kRowTiles, int kColTiles>
struct Sums {
  float c[kRowTiles][kColTiles][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int n = 0; n < kColTiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) c[r][n][e] = 0;
  }
  // body(number, r, n, e) for every c[r][n][e]
  template <typename Body>
  __device__ __forceinline__ void for_each(const Body& body) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int n = 0; n < kColTiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) body(c[r][n][e], r, n, e);
  }
};

// sums[16 kRowTiles, 8 kColTiles] += a b^T, with rows of `a` from a_row on, rows of `b` from b_row on, and sums over D.
template <typename T, int D, int kRowTiles, int kColTiles>
__device__ __forceinline__ void add_product_of_rows(Sums<kRowTiles, kColTiles>& sums, SharedTile<T, D> a, int a_row,
                                                    SharedTile<T, D> b, int b_row) {
  static_assert(kColTiles % 2 == 0);
  const LaneRows<T, D> a_lane = rows_then_cols(a, a_row), b_lane = cols_then_rows(b, b_row);
#pragma unroll 2  // more would fill registers with matrices that are loaded long before they are needed
  for (int k = 0; k < D / 16; ++k) {
    uint32_t left[kRowTiles][4];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) ldmatrix_x4(left[r], a_lane.at(16 * r, 2 * k));
#pragma unroll
    for (int n = 0; n < kColTiles; n += 2) {
      uint32_t right[4];  // two registers for column tile n, two for n + 1
      ldmatrix_x4(right, b_lane.at(8 * n, 2 * k));
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        mma_m16n8k16<T>(sums.c[r][n], left[r], right[0], right[1]);
        mma_m16n8k16<T>(sums.c[r][n + 1], left[r], right[2], right[3]);
      }
    }
  }
}

struct AsItIs {
  __device__ __forceinline__ float operator()(float x) const { return x; }
};

// sums[16 kRowTiles, D] += a b. `a` is in registers; `change` is applied to it, and the result is rounded to T. The sums are
// over the rows of `b` from b_row on.
template <typename T, int D, int kRowTiles, int kInnerTiles, typename Change = AsItIs>
__device__ __forceinline__ void add_product(Sums<kRowTiles, D / 8>& sums, const Sums<kRowTiles, kInnerTiles>& a,
                                            SharedTile<T, D> b, int b_row, const Change& change = {}) {
  static_assert(kInnerTiles % 2 == 0);
  const LaneRows<T, D> b_lane = rows_then_cols(b, b_row);
#pragma unroll
  for (int k = 0; k < kInnerTiles; k += 2) {
    uint32_t left[kRowTiles][4];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      left[r][0] = pack_pair<T>(change(a.c[r][k][0]), change(a.c[r][k][1]));
      left[r][1] = pack_pair<T>(change(a.c[r][k][2]), change(a.c[r][k][3]));
      left[r][2] = pack_pair<T>(change(a.c[r][k + 1][0]), change(a.c[r][k + 1][1]));
      left[r][3] = pack_pair<T>(change(a.c[r][k + 1][2]), change(a.c[r][k + 1][3]));
    }
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
      uint32_t right[4];
      ldmatrix_x4_trans(right, b_lane.at(8 * k, n));
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        mma_m16n8k16<T>(sums.c[r][n], left[r], right[0], right[1]);
        mma_m16n8k16<T>(sums.c[r][n + 1], left[r], right[2], right[3]);
      }
    }
  }
}

enum class RowsAre { Queries, Keys };

// Scores of keys after their query become minus infinity. first_row and first_col are tokens.
template <RowsAre kRows, int kRowTiles, int kColTiles>
__device__ __forceinline__ void hide_later_keys(Sums<kRowTiles, kColTiles>& scores, int first_row, int first_col) {
  const int last_row = first_row + 16 * kRowTiles - 1, last_col = first_col + 8 * kColTiles - 1;
  if (kRows == RowsAre::Queries ? last_col <= first_row : last_row <= first_col) return;  // no key is after a query
  const int row_of_lane = first_row + lane_group(), col_of_lane = first_col + 2 * lane_in_group();
  scores.for_each([&](float& score, int r, int n, int e) {
    const int row = row_of_lane + 16 * r + e / 2 * 8, col = col_of_lane + 8 * n + e % 2;
    if (kRows == RowsAre::Queries ? col > row : row > col) score = -INFINITY;
  });
}

// Where the documents of a sequence begin (kernels/attention.h): a query sees no key before its document.
struct Documents {
  const int32_t* first_tokens;  // [S], by token of the sequence
  int tokens;

  template <typename Arguments>
  __device__ __forceinline__ Documents(const Arguments& args, int64_t sequence)
      : first_tokens(args.documents + sequence * args.sizes.tokens), tokens(args.sizes.tokens) {}

  // Never less than that of an earlier token.
  __device__ __forceinline__ int first_key(int query) const { return query < tokens ? first_tokens[query] : tokens; }
};

// Scores of keys before the document of their query become minus infinity.
template <RowsAre kRows, int kRowTiles, int kColTiles>
__device__ __forceinline__ void hide_other_documents(Sums<kRowTiles, kColTiles>& scores, const Documents& documents,
                                                     int first_row, int first_col) {
  const int last_row = first_row + 16 * kRowTiles - 1, last_col = first_col + 8 * kColTiles - 1;
  constexpr bool kQueries = kRows == RowsAre::Queries;
  if (documents.first_key(kQueries ? last_row : last_col) <= (kQueries ? first_col : first_row)) return;
  const int row_of_lane = first_row + lane_group(), col_of_lane = first_col + 2 * lane_in_group();
  scores.for_each([&](float& score, int r, int n, int e) {
    const int row = row_of_lane + 16 * r + e / 2 * 8, col = col_of_lane + 8 * n + e % 2;
    if (kQueries ? col < documents.first_key(row) : row < documents.first_key(col)) score = -INFINITY;
  });
}

// to[rows of the matrix] = factor * sums, rounded to T. The warp's rows pass through rows of a tile that no other warp uses
// (any more), from tile_row on, so that device memory is written 16 bytes at a time.
template <typename T, int D, int kRowTiles>
__device__ __forceinline__ void store_rows(const Sums<kRowTiles, D / 8>& sums, float factor, SharedTile<T, D> tile,
                                           int tile_row, T* to, int64_t stride, int first, int rows) {
  constexpr int kChunks = SharedTile<T, D>::kChunks;
  const unsigned lane = static_cast<unsigned>(lane_index());
  const LaneRows<T, D> lane_rows(tile, tile_row + static_cast<int>(lane / 4), 0);
  const unsigned col = 2 * (lane % 4);  // in a chunk
  __syncwarp();
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        T* place = const_cast<T*>(lane_rows.at(16 * r + 8 * half, n)) + col;
        *reinterpret_cast<uint32_t*>(place) =
            pack_pair<T>(sums.c[r][n][2 * half] * factor, sums.c[r][n][2 * half + 1] * factor);
      }
  __syncwarp();
#pragma unroll
  for (unsigned i = 0; i < 16 * kRowTiles * kChunks / kWarpThreads; ++i) {
    const unsigned place = i * kWarpThreads + lane;
    const int row = static_cast<int>(place / kChunks), index = static_cast<int>(place % kChunks);
    if (first + row < rows)
      *reinterpret_cast<uint4*>(to + (first + row) * stride + index * 8) =
          *reinterpret_cast<const uint4*>(tile.chunk(tile_row + row, index));
  }
}

}  // namespace trivet::kernels::cuda
