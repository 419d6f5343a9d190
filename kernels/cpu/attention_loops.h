// The inner loops of attention, one set for each instruction set. Tiles have the type of the sums (float32, or float64 for
// float64).
//
// A tile is at most kTile queries by kTile keys. Tiles of queries and of keys start at the same positions, so that causality
// cuts only the tiles on the diagonal. Rows and columns are padded with zeros to multiples of kProductRows and kProductCols.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "kernels/cpu/numbers.h"

namespace trivet::kernels::cpu {

inline constexpr int64_t kTile = 64;
inline constexpr int64_t kProductRows = 8, kProductCols = 16;

[[gnu::always_inline]] constexpr int64_t padded(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

// Element (row, col) is data[row * row_stride + col * col_stride].
template <typename Sum>
struct TileView {
  const Sum* data = nullptr;
  int64_t row_stride = 0, col_stride = 1;
};

// The part that causality leaves of a product of tiles on the diagonal: the lower part of c (scores), of a (probabilities), or
// the upper part of a (probabilities transposed). The rest is zero or never read, and is skipped in blocks.
enum class TilePart { Whole, LowerOut, LowerLeft, UpperLeft };

// c[m, n] (+)= a[m, k] b[k, n]; m is a multiple of kProductRows and n of kProductCols; b and c are row-major.
template <typename Sum>
struct TileProduct {
  int64_t m = 0, n = 0, k = 0;
  TileView<Sum> a;
  const Sum* b = nullptr;
  int64_t b_stride = 0;
  Sum* c = nullptr;
  int64_t c_stride = 0;
  bool accumulate = false;
  TilePart part = TilePart::Whole;
};

// Dropout of probabilities: key `key` of row `row` is element first_element + row * row_elements + key of the sample.
struct TileDropout {
  float rate = 0;
  uint64_t key = 0, counter_high = 0, first_element = 0;
  int64_t row_elements = 0;
};

// scores[rows, kTile] become exp(score - maximum) after dropout, where maximum is that of this and all earlier tiles of the
// row; total and sums[rows, width], which were summed with an earlier maximum, are scaled to the new one. Scores of keys that a
// query does not see become 0.
template <typename Sum>
struct SoftmaxTile {
  int64_t rows = 0, width = 0;
  int64_t keys = kTile;     // keys that exist
  bool diagonal = false;    // row r sees only the keys up to r
  int64_t hidden = -kTile;  // row r does not see the first hidden + r keys
  Sum soft_cap = 0;         // 0: none; otherwise the scores that are meant are soft_cap tanh(score / soft_cap)
  Sum *scores = nullptr, *sums = nullptr, *maximum = nullptr, *total = nullptr;
  TileDropout dropout;
};

// probabilities: scores -> P f,  dscores: dP -> P (dP f - row_sum),  with P = exp(score - log_sum_exp) and dropout's factors f.
template <typename Sum>
struct ScoreGradientTile {
  int64_t rows = 0;
  int64_t keys = kTile;     // keys that exist
  bool diagonal = false;    // row r sees only the keys up to r
  int64_t hidden = -kTile;  // row r does not see the first hidden + r keys
  Sum soft_cap = 0;         // as in SoftmaxTile; dscores becomes the gradient of scores without the cap
  Sum *probabilities = nullptr, *dscores = nullptr;
  const Sum *log_sum_exp = nullptr, *row_sum = nullptr;
  TileDropout dropout;
};

template <typename T>
struct AttentionLoops {
  using Sum = SumOf<T>;

  void (*product)(const TileProduct<Sum>&);
  // to[padded rows, padded cols] = factor * from[rows, cols]
  void (*load_rows)(const T* from, int64_t from_stride, int64_t rows, int64_t cols, Sum factor, Sum* to);
  // to[cols, kTile] = from[rows, cols]^T; rows <= kTile
  void (*load_transposed)(const T* from, int64_t from_stride, int64_t rows, int64_t cols, Sum* to);
  // to[rows, cols] = factor * from[rows, padded cols]
  void (*store_rows)(const Sum* from, int64_t rows, int64_t cols, Sum factor, T* to, int64_t to_stride);
  void (*softmax)(const SoftmaxTile<Sum>&);
  void (*score_gradients)(const ScoreGradientTile<Sum>&);
};

// The loops of the instruction set in use.
template <typename T>
const AttentionLoops<T>& attention_loops();

}  // namespace trivet::kernels::cpu
