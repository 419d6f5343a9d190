// The loops of attention in bfloat16 for processors with dot products of pairs of bfloat16 (AVX512-BF16), which run at twice
// the rate of float32 and copy half the bytes. Sums are float32; probabilities and gradients of scores are rounded to bfloat16
// before they are multiplied, as PyTorch's fused attention does.
//
// A pair is two bfloat16 that are neighbours along the summed dimension of a product and are adjacent in memory.
#pragma once

#include "kernels/cpu/attention_loops.h"

namespace trivet::kernels::cpu {

// Multiples of these lengths need no padding; attention_loops.h has the loops for other lengths.
inline constexpr int64_t kPairTokens = 16, kPairHeadSize = 32;

// Pair p of row r starts at data + r * row_stride + p * pair_stride.
struct PairView {
  const bfloat16* data = nullptr;
  int64_t row_stride = 0, pair_stride = 2;
};

// c[m, n] (+)= a[m, k] b[k, n]; m is a multiple of kProductRows, n of kProductCols and k of 2. b is stored in pairs,
// b[k / 2][n][2].
struct PairProduct {
  int64_t m = 0, n = 0, k = 0;
  PairView a;
  const bfloat16* b = nullptr;
  float* c = nullptr;
  int64_t c_stride = 0;
  bool accumulate = false;
  TilePart part = TilePart::Whole;
};

// A SoftmaxTile of scores times `scale`, which is positive. The results are rounded and stored in probabilities[rows, kTile].
struct PairSoftmax {
  SoftmaxTile<float> tile;
  float scale = 1;
  bfloat16* probabilities = nullptr;
};

// A ScoreGradientTile of scores times `scale`; `rows` is a multiple of 2. The results are rounded and stored as pairs of rows
// [rows / 2][kTile][2], and dscores also as [rows, kTile].
struct PairScoreGradients {
  ScoreGradientTile<float> tile;
  float scale = 1;
  bfloat16 *paired_probabilities = nullptr, *paired_dscores = nullptr, *dscores = nullptr;
};

struct AttentionPairLoops {
  void (*product)(const PairProduct&);
  // to[rows / 2][cols][2] = from[rows, cols]
  void (*pair_rows)(const bfloat16* from, int64_t from_stride, int64_t rows, int64_t cols, bfloat16* to);
  // to[cols / 2][rows][2] = from[rows, cols]^T
  void (*pair_cols)(const bfloat16* from, int64_t from_stride, int64_t rows, int64_t cols, bfloat16* to);
  // to[row] = a[row, cols] . b[row, cols]
  void (*dot_rows)(const bfloat16* a, const bfloat16* b, int64_t stride, int64_t rows, int64_t cols, float* to);
  void (*softmax)(const PairSoftmax&);
  void (*score_gradients)(const PairScoreGradients&);
};

// Null if the processor has no such instructions or a test has forced a lower instruction set.
const AttentionPairLoops* attention_pair_loops();

}  // namespace trivet::kernels::cpu
