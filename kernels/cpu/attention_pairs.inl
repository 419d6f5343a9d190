// The loops of attention on pairs of bfloat16; attention_pairs.h says what each one does.
#include "kernels/cpu/attention_loops.inl"

#define TRIVET_INLINE [[gnu::always_inline]] inline

TRIVET_INLINE __m512bh load_pairs(const bfloat16* from) { return (__m512bh)_mm512_loadu_si512(from); }
TRIVET_INLINE __m512bh spread_pair(const bfloat16* from) {
  int32_t pair;
  __builtin_memcpy(&pair, from, 4);
  return (__m512bh)_mm512_set1_epi32(pair);
}

// c[8, kVectors lanes] (+)= a[8, pairs] b[pairs, kVectors lanes], all of c in registers
template <int kVectors>
TRIVET_INLINE void pair_block(int64_t pairs, const PairView& a, const bfloat16* b, int64_t n, float* c, int64_t c_stride,
                              bool accumulate) {
  __m512 sum[kProductRows][kVectors];
#pragma GCC unroll 8
  for (int row = 0; row < kProductRows; ++row)
    for (int v = 0; v < kVectors; ++v)
      sum[row][v] = accumulate ? _mm512_loadu_ps(c + row * c_stride + v * 16) : _mm512_setzero_ps();
  for (int64_t p = 0; p < pairs; ++p) {
    __m512bh right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = load_pairs(b + 2 * (p * n + v * 16));
#pragma GCC unroll 8
    for (int row = 0; row < kProductRows; ++row) {
      const __m512bh left = spread_pair(a.data + row * a.row_stride + p * a.pair_stride);
      for (int v = 0; v < kVectors; ++v) sum[row][v] = _mm512_dpbf16_ps(sum[row][v], left, right[v]);
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kProductRows; ++row)
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(c + row * c_stride + v * 16, sum[row][v]);
}

void pair_product(const PairProduct& x) {
  for (int64_t row = 0; row < x.m; row += kProductRows) {
    const int64_t n = x.part == TilePart::LowerOut ? smaller(padded(row + kProductRows, kProductCols), x.n) : x.n;
    const int64_t first = x.part == TilePart::UpperLeft ? row / 2 : 0;
    const int64_t end = (x.part == TilePart::LowerLeft ? smaller(row + kProductRows, x.k) : x.k) / 2;
    const PairView left{x.a.data + row * x.a.row_stride + first * x.a.pair_stride, x.a.row_stride, x.a.pair_stride};
    const bfloat16* right = x.b + 2 * first * x.n;
    float* out = x.c + row * x.c_stride;
    int64_t col = 0;
    for (; col + 32 <= n; col += 32)
      pair_block<2>(end - first, left, right + 2 * col, x.n, out + col, x.c_stride, x.accumulate);
    for (; col < n; col += 16) pair_block<1>(end - first, left, right + 2 * col, x.n, out + col, x.c_stride, x.accumulate);
  }
}

// to[16][2]: lane l of low, lane l of high
TRIVET_INLINE void store_pairs(const HalfWords& low, const HalfWords& high, bfloat16* to) {
  const Words pairs = __builtin_convertvector(low, Words) | __builtin_convertvector(high, Words) << 16;
  __builtin_memcpy(static_cast<void*>(to), &pairs, 64);
}

void pair_rows(const bfloat16* from, int64_t from_stride, int64_t rows, int64_t cols, bfloat16* to) {
  for (int64_t row = 0; row < rows; row += 2)
    for (int64_t col = 0; col < cols; col += 16) {
      HalfWords low, high;
      __builtin_memcpy(&low, from + row * from_stride + col, 32);
      __builtin_memcpy(&high, from + (row + 1) * from_stride + col, 32);
      store_pairs(low, high, to + row * cols + 2 * col);
    }
}

void pair_cols(const bfloat16* from, int64_t from_stride, int64_t rows, int64_t cols, bfloat16* to) {
  for (int64_t row = 0; row < rows; row += 16)
    for (int64_t col = 0; col < cols; col += 32) {
      Lanes<float>::type block[16];
      for (int r = 0; r < 16; ++r) __builtin_memcpy(&block[r], from + (row + r) * from_stride + col, 64);
      transpose<float>(block);
      for (int c = 0; c < 16; ++c) __builtin_memcpy(static_cast<void*>(to + (col + 2 * c) * rows + 2 * row), &block[c], 64);
    }
}

void dot_rows(const bfloat16* a, const bfloat16* b, int64_t stride, int64_t rows, int64_t cols, float* to) {
  for (int64_t row = 0; row < rows; ++row) {
    Lanes<float>::type sum = {};
    for (int64_t col = 0; col < cols; col += 32)
      sum = (Lanes<float>::type)_mm512_dpbf16_ps((__m512)sum, load_pairs(a + row * stride + col),
                                                 load_pairs(b + row * stride + col));
    spread_sum<float>(sum);
    to[row] = sum[0];
  }
}

TRIVET_INLINE HalfWords rounded(const Lanes<float>::type& lanes) { return (HalfWords)_mm512_cvtneps_pbh((__m512)lanes); }
TRIVET_INLINE void store_halves(const HalfWords& halves, bfloat16* to) {
  __builtin_memcpy(static_cast<void*>(to), &halves, 32);
}

// Like softmax_row, with the scale applied on the way.
void pair_softmax_row(const PairSoftmax& softmax, int64_t row) {
  using Vector = Lanes<float>::type;
  const SoftmaxTile<float>& x = softmax.tile;
  float* scores = x.scores + row * kTile;
  const int64_t visible = x.diagonal ? row + 1 : x.keys;
  const float scale = x.soft_cap > 0 ? 1 : softmax.scale;  // cap_scores scales, too
  if (x.soft_cap > 0) cap_scores(scores, visible, softmax.scale, x.soft_cap, static_cast<float*>(nullptr));
  const int64_t keys = hide_keys(scores, visible);
  if (hide_early_keys(scores, x.hidden + row, visible)) {
    for (int64_t key = 0; key < keys; key += 16) store_halves(HalfWords{}, softmax.probabilities + row * kTile + key);
    return;
  }
  const Vector before = x.maximum[row] - Vector{};
  Vector maximum = -__builtin_inff() - Vector{}, sum = {}, lanes;
  for (int64_t key = 0; key < keys; key += 16) {
    load(scores + key, lanes);
    maximum = lanes > maximum ? lanes : maximum;
  }
  spread_maximum<float>(maximum);
  maximum *= scale;
  maximum = before > maximum ? before : maximum;
  float factors[kTile];
  if (x.dropout.rate > 0) dropout_factors(x.dropout, row, factors);
  for (int64_t key = 0; key < keys; key += 16) {
    load(scores + key, lanes);
    lanes = lanes * scale - maximum;
    exponentiate(lanes);
    sum += lanes;
    if (x.dropout.rate > 0) {
      Vector factor;
      load(factors + key, factor);
      lanes *= factor;
    }
    store_halves(rounded(lanes), softmax.probabilities + row * kTile + key);
  }
  spread_sum<float>(sum);
  Vector shrink = before - maximum;
  exponentiate(shrink);
  x.total[row] = x.total[row] * shrink[0] + sum[0];
  x.maximum[row] = maximum[0];
  for (int64_t d = 0; d < x.width; d += 16) {
    load(x.sums + row * x.width + d, lanes);
    store(lanes * shrink, x.sums + row * x.width + d);
  }
}

void pair_softmax(const PairSoftmax& x) {
  for (int64_t row = 0; row < x.tile.rows; ++row) pair_softmax_row(x, row);
}

// Values for 16 keys of a row: the probability after dropout, and dscore, both rounded.
struct RoundedGradients {
  HalfWords probability, dscore;
};

TRIVET_INLINE RoundedGradients gradients_of_keys(const PairScoreGradients& gradients, int64_t row, int64_t key,
                                                 const float* factors, const float* slopes) {
  const ScoreGradientTile<float>& x = gradients.tile;
  Lanes<float>::type probability, dscore, factor, slope;
  load(x.probabilities + row * kTile + key, probability);
  load(x.dscores + row * kTile + key, dscore);
  probability = probability * (slopes ? 1 : gradients.scale) - x.log_sum_exp[row];
  exponentiate(probability);
  if (factors) {
    load(factors + key, factor);
    dscore = probability * (dscore * factor - x.row_sum[row]);
    probability *= factor;
  } else {
    dscore = probability * (dscore - x.row_sum[row]);
  }
  if (slopes) {
    load(slopes + key, slope);
    dscore *= slope;
  }
  return {rounded(probability), rounded(dscore)};
}

void pair_score_gradients(const PairScoreGradients& x) {
  float factors[2][kTile], slopes[2][kTile] = {};
  const bool drops = x.tile.dropout.rate > 0, caps = x.tile.soft_cap > 0;
  for (int64_t row = 0; row < x.tile.rows; row += 2) {
    int64_t keys = kTile;
    for (int64_t r = 0; r < 2; ++r) {
      float* const scores = x.tile.probabilities + (row + r) * kTile;
      const int64_t visible = x.tile.diagonal ? row + r + 1 : x.tile.keys;
      if (caps) cap_scores(scores, visible, x.scale, x.tile.soft_cap, slopes[r]);
      keys = hide_keys(scores, visible);
      hide_early_keys(scores, x.tile.hidden + row + r, visible);
      if (drops) dropout_factors(x.tile.dropout, row + r, factors[r]);
    }
    for (int64_t key = 0; key < keys; key += 16) {
      const RoundedGradients low = gradients_of_keys(x, row, key, drops ? factors[0] : nullptr, caps ? slopes[0] : nullptr);
      const RoundedGradients high =
          gradients_of_keys(x, row + 1, key, drops ? factors[1] : nullptr, caps ? slopes[1] : nullptr);
      const int64_t place = row * kTile + 2 * key;
      store_pairs(low.probability, high.probability, x.paired_probabilities + place);
      store_pairs(low.dscore, high.dscore, x.paired_dscores + place);
      store_halves(low.dscore, x.dscores + row * kTile + key);
      store_halves(high.dscore, x.dscores + (row + 1) * kTile + key);
    }
  }
}

#undef TRIVET_INLINE

constexpr AttentionPairLoops kPairLoops = {&pair_product, &pair_rows,    &pair_cols,
                                           &dot_rows,     &pair_softmax, &pair_score_gradients};
