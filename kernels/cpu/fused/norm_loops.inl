#include "kernels/cpu/fused/numbers.inl"

// H hidden. The loops process one row at a time. The terms of its sums are small function objects, so that lane_sum fixes their
// order.

template <typename T>
struct Value {
  const T* x;
  SumOf<T> operator()(int64_t i) const { return read(x[i]); }
};
template <typename T>
struct SquaredDeviation {
  const T* x;
  SumOf<T> mean;
  SumOf<T> operator()(int64_t i) const { return (read(x[i]) - mean) * (read(x[i]) - mean); }
};

template <typename T>
void layer_norm_row(const T* x, const T* gain, const T* bias, T* y, SumOf<T>* mean_out, SumOf<T>* rstd_out, float epsilon,
                    int64_t hidden) {
  using Sum = SumOf<T>;
  const Sum count = static_cast<Sum>(hidden);
  const Sum mean = lane_sum<Sum>(hidden, Value<T>{x}) / count;
  const Sum variance = lane_sum<Sum>(hidden, SquaredDeviation<T>{x, mean}) / count;
  const Sum rstd = Sum(1) / square_root(variance + static_cast<Sum>(epsilon));
#pragma GCC ivdep
  for (int64_t i = 0; i < hidden; ++i) y[i] = write<T>((read(x[i]) - mean) * rstd * read(gain[i]) + read(bias[i]));
  *mean_out = mean;
  *rstd_out = rstd;
}

template <typename T>
void rms_norm_row(const T* x, const T* gain, T* y, SumOf<T>* rstd_out, float epsilon, int64_t hidden) {
  using Sum = SumOf<T>;
  const Sum mean_square = lane_sum<Sum>(hidden, SquaredDeviation<T>{x, 0}) / static_cast<Sum>(hidden);
  const Sum rstd = Sum(1) / square_root(mean_square + static_cast<Sum>(epsilon));
#pragma GCC ivdep
  for (int64_t i = 0; i < hidden; ++i) y[i] = write<T>(read(x[i]) * rstd * read(gain[i]));
  *rstd_out = rstd;
}

template <typename T>
struct Scaled {  // gradient of the normalized row
  const T *dy, *gain;
  SumOf<T> operator()(int64_t i) const { return read(dy[i]) * read(gain[i]); }
};
template <typename T>
struct ScaledTimesNormalized {
  const T *dy, *gain, *x;
  SumOf<T> mean, rstd;
  SumOf<T> operator()(int64_t i) const { return read(dy[i]) * read(gain[i]) * ((read(x[i]) - mean) * rstd); }
};

// dx = (residual +) rstd (g - sum(g) / H - n sum(g n) / H) with g = dy gain and n the normalized row. RmsNorm has mean 0 and no
// middle term. dx may be the residual.
template <typename T, bool kCentred, bool kResidual>
void norm_backward_row(const T* dy, const T* x, const T* gain, SumOf<T> mean, SumOf<T> rstd, const T* residual, T* dx,
                       int64_t hidden) {
  using Sum = SumOf<T>;
  const Sum count = static_cast<Sum>(hidden);
  const Sum offset = kCentred ? lane_sum<Sum>(hidden, Scaled<T>{dy, gain}) / count : Sum(0);
  const Sum slope = lane_sum<Sum>(hidden, ScaledTimesNormalized<T>{dy, gain, x, mean, rstd}) / count;
#pragma GCC ivdep
  for (int64_t i = 0; i < hidden; ++i) {
    const Sum normalized = (read(x[i]) - mean) * rstd;
    const Sum gradient = rstd * (read(dy[i]) * read(gain[i]) - offset - normalized * slope);
    dx[i] = write<T>(kResidual ? read(residual[i]) + gradient : gradient);
  }
}

// ---- Sums over rows, for a stripe of columns: out[i] += sum over rows of a term. `stride` is the length of a row.

template <typename T>
void add_rows(const T* dy, int64_t rows, int64_t stride, SumOf<T>* out, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row)
#pragma GCC ivdep
    for (int64_t i = 0; i < cols; ++i) out[i] += read(dy[row * stride + i]);
}

// A null `mean` counts as 0. Row r has the statistics r * statistics_stride.
template <typename T>
void add_rows_times_normalized(const T* dy, const T* x, const SumOf<T>* mean, const SumOf<T>* rstd, int64_t statistics_stride,
                               int64_t rows, int64_t stride, SumOf<T>* out, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t statistic = row * statistics_stride;
    const SumOf<T> centre = mean ? mean[statistic] : SumOf<T>(0), factor = rstd[statistic];
    const T *gradient = dy + row * stride, *value = x + row * stride;
#pragma GCC ivdep
    for (int64_t i = 0; i < cols; ++i) out[i] += read(gradient[i]) * ((read(value[i]) - centre) * factor);
  }
}

template <typename Sum>
void add_partial(const Sum* partial, Sum* total, int64_t cols) {
#pragma GCC ivdep
  for (int64_t i = 0; i < cols; ++i) total[i] += partial[i];
}

template <typename Sum, typename G>
void store_sums(const Sum* total, G* out, int64_t cols, bool accumulate) {
  if (accumulate)
#pragma GCC ivdep
    for (int64_t i = 0; i < cols; ++i) out[i] = write<G>(static_cast<Sum>(read(out[i])) + total[i]);
  else
#pragma GCC ivdep
    for (int64_t i = 0; i < cols; ++i) out[i] = write<G>(total[i]);
}
