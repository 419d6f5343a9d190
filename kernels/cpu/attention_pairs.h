// The loops of attention in bfloat16 where the processor has dot products of pairs of bfloat16 (AVX512-BF16): twice the rate of
// float32, and half the bytes to copy. Sums are float32; probabilities and gradients of scores are rounded to bfloat16 before
// they are multiplied, as PyTorch's fused attention does.
//
// A pair is two bfloat16 that are neighbours along the summed dimension of a product and lie side by side.
#pragma once

#include "kernels/cpu/attention_loops.h"

namespace trivet::kernels::cpu {

// Lengths that need no padding; for others attention_loops.h has the loops.
inline constexpr int64_t kPairTokens = 16, kPairHeadSize = 32;

// Pair p of row r starts at data + r * row_stride + p * pair_stride.
struct PairView {
  const bfloat16* data = nullptr;
  int64_t row_stride = 0, pair_stride = 2;
};

// c[m, n] (+)= a[m, k] b[k, n]; m a multiple of kProductRows, n of kProductCols, k of 2. Pairs of b are b[k / 2][n][2].
struct PairProduct {
  int64_t m = 0, n = 0, k = 0;
  PairView a;
  const bfloat16* b = nullptr;
  float* c = nullptr;
  int64_t c_stride = 0;
  bool accumulate = false;
  TilePart part = TilePart::Whole;
};

// SoftmaxTile of scores times `scale`, which is positive; what becomes of them is also rounded to probabilities[rows, kTile].
struct PairSoftmax {
  SoftmaxTile<float> tile;
  float scale = 1;
  bfloat16* probabilities = nullptr;
};

// ScoreGradientTile of scores times `scale`, `rows` a multiple of 2. The results are rounded: pairs of rows
// [rows / 2][kTile][2], and dscores again as [rows, kTile].
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

// Null where the processor has no such instructions, or a test has forced a lower instruction set.
const AttentionPairLoops* attention_pair_loops();

}  // namespace trivet::kernels::cpu
