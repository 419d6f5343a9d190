// The loops of attention, compiled per instruction set; attention_loops.h says what each one does.
#include "kernels/cpu/fused/numbers.inl"
#include "kernels/cpu/lanes.inl"
#include "kernels/cpu/philox_lanes.inl"
#include "kernels/cpu/philox_words.inl"

[[gnu::always_inline]] inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// A register, and how many rows of c, two registers each, the registers hold together with what they are computed from.
inline constexpr int kRegister = TRIVET_REGISTER_BYTES, kBlockRows = kRegister == 64 ? 8 : 4;
template <typename Sum>
struct Register;
template <>
struct Register<float> {
  typedef float type __attribute__((vector_size(kRegister), may_alias));
};
template <>
struct Register<double> {
  typedef double type __attribute__((vector_size(kRegister), may_alias));
};

// c[kBlockRows, kRegisters registers] (+)= a[kBlockRows, k] b[k, kRegisters registers], all of c in registers
template <int kRegisters, typename Sum>
[[gnu::always_inline]] inline void block_product(int64_t k, const TileView<Sum>& a, const Sum* b, int64_t b_stride, Sum* c,
                                                 int64_t c_stride, bool accumulate) {
  typedef typename Register<Sum>::type Vector;
  constexpr int64_t kLanes = kRegister / sizeof(Sum);
  Vector sum[kBlockRows][kRegisters] = {};
  for (int64_t p = 0; p < k; ++p) {
    Vector right[kRegisters];
    for (int v = 0; v < kRegisters; ++v) __builtin_memcpy(&right[v], b + p * b_stride + v * kLanes, kRegister);
#pragma GCC unroll 8
    for (int row = 0; row < kBlockRows; ++row) {
      const Sum left = a.data[row * a.row_stride + p * a.col_stride];
      for (int v = 0; v < kRegisters; ++v) sum[row][v] += left * right[v];
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kBlockRows; ++row)
    for (int v = 0; v < kRegisters; ++v) {
      Sum* out = c + row * c_stride + v * kLanes;
      Vector before = {};
      if (accumulate) __builtin_memcpy(&before, out, kRegister);
      before += sum[row][v];
      __builtin_memcpy(out, &before, kRegister);
    }
}

template <typename Sum>
void product(const TileProduct<Sum>& x) {
  constexpr int64_t kLanes = kRegister / sizeof(Sum);
  for (int64_t row = 0; row < x.m; row += kProductRows) {
    const int64_t n = x.part == TilePart::LowerOut ? smaller(padded(row + kProductRows, kProductCols), x.n) : x.n;
    const int64_t first = x.part == TilePart::UpperLeft ? row : 0;
    const int64_t end = x.part == TilePart::LowerLeft ? smaller(row + kProductRows, x.k) : x.k;
    for (int64_t part = row; part < row + kProductRows; part += kBlockRows) {
      const TileView<Sum> left{x.a.data + part * x.a.row_stride + first * x.a.col_stride, x.a.row_stride, x.a.col_stride};
      const Sum* right = x.b + first * x.b_stride;
      Sum* out = x.c + part * x.c_stride;
      int64_t col = 0;
      for (; col + 2 * kLanes <= n; col += 2 * kLanes)
        block_product<2>(end - first, left, right + col, x.b_stride, out + col, x.c_stride, x.accumulate);
      for (; col < n; col += kLanes)
        block_product<1>(end - first, left, right + col, x.b_stride, out + col, x.c_stride, x.accumulate);
    }
  }
}

template <typename T, typename Sum>
void load_rows(const T* from, int64_t from_stride, int64_t rows, int64_t cols, Sum factor, Sum* to) {
  constexpr int64_t kLanes = Lanes<Sum>::kCount;
  const int64_t padded_rows = padded(rows, kProductCols), padded_cols = padded(cols, kProductCols);
  for (int64_t row = 0; row < padded_rows; ++row)
    for (int64_t col = 0; col < padded_cols; col += kLanes) {
      typename Lanes<Sum>::type lanes = {};
      if (row < rows && col < cols) load_some(from + row * from_stride + col, cols - col, Sum{0}, lanes);
      store(lanes * factor, to + row * padded_cols + col);
    }
}

template <typename T, typename Sum>
void load_transposed(const T* from, int64_t from_stride, int64_t rows, int64_t cols, Sum* to) {
  constexpr int64_t kLanes = Lanes<Sum>::kCount;
  for (int64_t first = 0; first < kTile; first += kLanes)
    for (int64_t col = 0; col < cols; col += kLanes) {
      typename Lanes<Sum>::type block[kLanes] = {};
      for (int64_t row = 0; row < kLanes && first + row < rows; ++row)
        load_some(from + (first + row) * from_stride + col, cols - col, Sum{0}, block[row]);
      transpose<Sum>(block);
      for (int64_t c = 0; c < kLanes && col + c < cols; ++c) store(block[c], to + (col + c) * kTile + first);
    }
}

template <typename T, typename Sum>
void store_rows(const Sum* from, int64_t rows, int64_t cols, Sum factor, T* to, int64_t to_stride) {
  constexpr int64_t kLanes = Lanes<Sum>::kCount;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t col = 0; col < cols; col += kLanes) {
      typename Lanes<Sum>::type lanes;
      load(from + row * padded(cols, kProductCols) + col, lanes);
      store_some<Sum>(lanes * factor, cols - col, to + row * to_stride + col);
    }
}

// A factor is 0 if the random word says that dropout drops the key, and `keep` otherwise.
inline void factors_of_words(const uint32_t* words, float rate, float keep, float* factors) {
  for (int64_t key = 0; key < kTile; key += 16) {
    Words lanes;
    __builtin_memcpy(&lanes, words + key, 64);
    const Lanes<float>::Int integers = reinterpret_cast<const Lanes<float>::Int&>(lanes = lanes >> 8);
    const Lanes<float>::type draws = __builtin_convertvector(integers, Lanes<float>::type) * 0x1p-24f;
    store(draws < rate ? Lanes<float>::type{} : keep - Lanes<float>::type{}, factors + key);
  }
}
inline void factors_of_words(const uint32_t* words, float rate, double keep, double* factors) {
  for (int64_t key = 0; key < kTile; ++key)
    factors[key] = static_cast<float>(static_cast<int32_t>(words[key] >> 8)) * 0x1p-24f < rate ? 0.0 : keep;
}

// factors[0 .. kTile) of a row: 0 where dropout drops the key, otherwise 1 / (1 - rate).
template <typename Sum>
void dropout_factors(const TileDropout& dropout, int64_t row, Sum* factors) {
  const uint64_t first = dropout.first_element + static_cast<uint64_t>(row * dropout.row_elements);
  uint32_t words[2 * kTile];
#if TRIVET_REGISTER_BYTES == 64
  philox_words_of_16_blocks(dropout.key, first / 4, dropout.counter_high, words);
  if (first % 4 != 0) philox_words_of_16_blocks(dropout.key, first / 4 + kTile / 4, dropout.counter_high, words + kTile);
#else  // narrower registers do not hold 16 counters
  philox_words(dropout.key, first / 4, dropout.counter_high, words, kTile / 4 + (first % 4 != 0 ? 1 : 0));
#endif
  factors_of_words(words + first % 4, dropout.rate, Sum{1} / (Sum{1} - static_cast<Sum>(dropout.rate)), factors);
}

// Scores of keys after the `visible` first become minus infinity up to the next multiple of kProductCols, which is returned.
template <typename Sum>
int64_t hide_keys(Sum* scores, int64_t visible) {
  const int64_t keys = padded(visible, kProductCols);
  for (int64_t key = visible; key < keys; ++key) scores[key] = -static_cast<Sum>(__builtin_inf());
  return keys;
}

// Scores of keys before the window of a row become minus infinity. Returns whether no key is left.
template <typename Sum>
bool hide_early_keys(Sum* scores, int64_t hidden, int64_t visible) {
  const int64_t end = smaller(hidden, visible);
  for (int64_t key = 0; key < end; ++key) scores[key] = -static_cast<Sum>(__builtin_inf());
  return end == visible;
}

// Scores of the first `keys` keys become soft_cap tanh(scale score / soft_cap). If slopes are given, they become the derivative
// of that by scale score.
template <typename Sum>
void cap_scores(Sum* scores, int64_t keys, Sum scale, Sum soft_cap, Sum* slopes) {
#pragma GCC ivdep
  for (int64_t key = 0; key < keys; ++key) scores[key] = hyperbolic_tangent(scores[key] * scale / soft_cap);
  if (slopes)
    for (int64_t key = 0; key < keys; ++key) slopes[key] = Sum{1} - scores[key] * scores[key];
  for (int64_t key = 0; key < keys; ++key) scores[key] *= soft_cap;
}

template <typename Sum>
void softmax_row(const SoftmaxTile<Sum>& x, int64_t row) {
  using Vector = typename Lanes<Sum>::type;
  constexpr int64_t kLanes = Lanes<Sum>::kCount;
  Sum* scores = x.scores + row * kTile;
  const int64_t visible = x.diagonal ? row + 1 : x.keys;
  if (x.soft_cap > 0) cap_scores<Sum>(scores, visible, 1, x.soft_cap, nullptr);
  const int64_t keys = hide_keys(scores, visible);
  if (hide_early_keys(scores, x.hidden + row, visible)) {
    for (int64_t key = 0; key < keys; ++key) scores[key] = 0;
    return;
  }
  const Vector before = x.maximum[row] - Vector{};
  Vector maximum = before, sum = {}, lanes;
  for (int64_t key = 0; key < keys; key += kLanes) {
    load(scores + key, lanes);
    maximum = lanes > maximum ? lanes : maximum;
  }
  spread_maximum<Sum>(maximum);
  for (int64_t key = 0; key < keys; key += kLanes) {
    load(scores + key, lanes);
    lanes -= maximum;
    exponentiate(lanes);
    sum += lanes;
    store(lanes, scores + key);
  }
  spread_sum<Sum>(sum);
  Vector shrink = before - maximum;
  exponentiate(shrink);
  x.total[row] = x.total[row] * shrink[0] + sum[0];
  x.maximum[row] = maximum[0];
  for (int64_t d = 0; d < x.width; d += kLanes) {
    load(x.sums + row * x.width + d, lanes);
    store(lanes * shrink, x.sums + row * x.width + d);
  }
  if (x.dropout.rate == 0) return;
  Sum factors[kTile];
  dropout_factors(x.dropout, row, factors);
  for (int64_t key = 0; key < keys; ++key) scores[key] *= factors[key];
}

template <typename Sum>
void softmax(const SoftmaxTile<Sum>& x) {
  for (int64_t row = 0; row < x.rows; ++row) softmax_row(x, row);
}

template <typename Sum>
void score_gradients_of_row(const ScoreGradientTile<Sum>& x, int64_t row) {
  using Vector = typename Lanes<Sum>::type;
  constexpr int64_t kLanes = Lanes<Sum>::kCount;
  Sum *probabilities = x.probabilities + row * kTile, *dscores = x.dscores + row * kTile;
  const int64_t visible = x.diagonal ? row + 1 : x.keys;
  Sum slopes[kTile];
  if (x.soft_cap > 0) cap_scores<Sum>(probabilities, visible, 1, x.soft_cap, slopes);
  const int64_t keys = hide_keys(probabilities, visible);
  hide_early_keys(probabilities, x.hidden + row, visible);
  Sum factors[kTile];
  if (x.dropout.rate > 0)
    dropout_factors(x.dropout, row, factors);
  else
    for (int64_t key = 0; key < kTile; ++key) factors[key] = Sum{1};
  for (int64_t key = 0; key < keys; key += kLanes) {
    Vector probability, dscore, factor;
    load(probabilities + key, probability);
    load(dscores + key, dscore);
    load(factors + key, factor);
    probability -= x.log_sum_exp[row];
    exponentiate(probability);
    store(probability * (dscore * factor - x.row_sum[row]), dscores + key);
    store(probability * factor, probabilities + key);
  }
  if (x.soft_cap > 0)
    for (int64_t key = 0; key < visible; ++key) dscores[key] *= slopes[key];
}

template <typename Sum>
void score_gradients(const ScoreGradientTile<Sum>& x) {
  for (int64_t row = 0; row < x.rows; ++row) score_gradients_of_row(x, row);
  for (int64_t row = x.rows; row < padded(x.rows, kProductRows); ++row)
    for (int64_t key = 0; key < kTile; ++key) x.probabilities[row * kTile + key] = x.dscores[row * kTile + key] = 0;
}

template <typename T>
constexpr AttentionLoops<T> kLoops = {&product<SumOf<T>>,       &load_rows<T, SumOf<T>>, &load_transposed<T, SumOf<T>>,
                                      &store_rows<T, SumOf<T>>, &softmax<SumOf<T>>,      &score_gradients<SumOf<T>>};
