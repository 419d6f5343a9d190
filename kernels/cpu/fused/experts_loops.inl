#include "kernels/cpu/fused/numbers.inl"

template <typename Sum>
inline Sum sigmoid(Sum z) {
  const Sum small = exponential(z < 0 ? z : -z);
  return (z < 0 ? small : Sum(1)) / (Sum(1) + small);
}

template <typename Sum>
void sigmoids(const Sum* z, Sum* p, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) p[e] = sigmoid(z[e]);
}

// Returns logsumexp(z) - `most`, the largest of z, as the sum whose logarithm it is.
template <typename Sum>
Sum softmax(const Sum* z, Sum most, Sum* p, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) p[e] = exponential(z[e] - most);
  const Sum sum = lane_sum<Sum>(count, [&](int64_t e) { return p[e]; });
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) p[e] /= sum;
  return sum;
}

template <typename T>
void weighted_swiglu(const T* gate, const T* up, T* y, SumOf<T> weight, int64_t count) {
  using Sum = SumOf<T>;
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) {
    const Sum value = read(gate[e]);
    y[e] = write<T>(value / (Sum(1) + exponential(-value)) * read(up[e]) * weight);
  }
}

// Also stores the terms of the weight's gradient.
template <typename T>
void weighted_swiglu_backward(const T* dy, const T* gate, const T* up, T* dgate, T* dup, SumOf<T>* terms, SumOf<T> weight,
                              int64_t count) {
  using Sum = SumOf<T>;
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) {
    const Sum value = read(gate[e]), gradient = read(dy[e]), factor = read(up[e]);
    const Sum small = exponential(value < 0 ? value : -value), whole = Sum(1) + small;
    const Sum open = (value < 0 ? small : Sum(1)) / whole, slope = small / (whole * whole);
    terms[e] = gradient * (value * open * factor);
    dgate[e] = write<T>(gradient * weight * factor * (open + value * slope));
    dup[e] = write<T>(gradient * weight * value * open);
  }
}

// The same for a SwiGLU with limits (kernels/experts.h, SwiGluRule).
template <typename T>
void weighted_limited_swiglu(const T* gate, const T* up, T* y, SumOf<T> weight, int64_t count, SwiGluLimits<SumOf<T>> rule) {
  using Sum = SumOf<T>;
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) {
    const Sum g = read(gate[e]), u = read(up[e]);
    const Sum value = g > rule.limit ? rule.limit : g;
    const Sum factor = (u > rule.limit ? rule.limit : u < -rule.limit ? -rule.limit : u) + rule.offset;
    y[e] = write<T>(value / (Sum(1) + exponential(-rule.alpha * value)) * factor * weight);
  }
}

template <typename T>
void weighted_limited_swiglu_backward(const T* dy, const T* gate, const T* up, T* dgate, T* dup, SumOf<T>* terms,
                                      SumOf<T> weight, int64_t count, SwiGluLimits<SumOf<T>> rule) {
  using Sum = SumOf<T>;
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) {
    const Sum g = read(gate[e]), u = read(up[e]), gradient = read(dy[e]);
    const Sum value = g > rule.limit ? rule.limit : g;
    const Sum factor = (u > rule.limit ? rule.limit : u < -rule.limit ? -rule.limit : u) + rule.offset;
    const Sum turn = rule.alpha * value, small = exponential(turn < 0 ? turn : -turn), whole = Sum(1) + small;
    const Sum open = (turn < 0 ? small : Sum(1)) / whole, slope = small / (whole * whole);
    terms[e] = gradient * (value * open * factor);
    dgate[e] = write<T>(g > rule.limit ? Sum(0) : gradient * weight * factor * (open + turn * slope));
    dup[e] = write<T>(u > rule.limit || u < -rule.limit ? Sum(0) : gradient * weight * value * open);
  }
}

template <typename T>
void add_to(const T* x, T* y, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) y[e] = write<T>(read(y[e]) + read(x[e]));
}

template <typename T, typename From>
void add_rows(const From* const* rows, int64_t count, T* out, int64_t width) {
  using Sum = SumOf<T>;
  for (int64_t e = 0; e < width; ++e) {
    Sum sum = read(rows[0][e]);
    for (int64_t k = 1; k < count; ++k) sum += read(rows[k][e]);
    out[e] = write<T>(sum);
  }
}

template <typename Sum>
Sum sum_of(const Sum* terms, int64_t count) {
  return lane_sum<Sum>(count, [&](int64_t e) { return terms[e]; });
}

template <typename T>
void add_scaled(const T* x, SumOf<T> factor, T* y, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) y[e] = write<T>(read(y[e]) + factor * read(x[e]));
}

// Returns the gradient of the factor.
template <typename T>
SumOf<T> add_scaled_backward(const T* dy, const T* x, SumOf<T> factor, T* dx, int64_t count) {
  using Sum = SumOf<T>;
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) dx[e] = write<T>(factor * read(dy[e]));
  return lane_sum<Sum>(count, [&](int64_t e) { return Sum(read(dy[e])) * Sum(read(x[e])); });
}
