#include "kernels/cpu/fused/numbers.inl"

template <typename From, typename To>
void convert(const From* from, To* to, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) to[e] = write<To>(read(from[e]));
}

template <typename T>
void add(const T* from, T* out, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) out[e] = write<T>(read(out[e]) + read(from[e]));
}

template <typename X, typename T>
void add_bias_row(const X* x, const T* bias, T* out, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) out[e] = write<T>(read(x[e]) + read(bias[e]));
}

inline void add_integers(const int64_t* from, int64_t* out, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e)
    out[e] = static_cast<int64_t>(static_cast<uint64_t>(out[e]) + static_cast<uint64_t>(from[e]));
}

template <typename T>
void scale(T* out, double factor, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) out[e] = write<T>(static_cast<double>(read(out[e])) * factor);
}

template <typename T>
struct Square {
  const T* x;
  double scale;
  double operator()(int64_t i) const {
    const double value = static_cast<double>(read(x[i])) * scale;
    return value * value;
  }
};
template <typename T>
double square_sum(const T* x, double scale, int64_t count) {
  return lane_sum<double>(count, Square<T>{x, scale});
}

// The multiple of 2^-44 nearest to x * scale, times 2^44. A value that does not fit becomes 0 and is counted in `refused`.
template <typename T>
double to_grid(T x, double scale, double limit, int64_t& refused) {
  const double value = static_cast<double>(read(x)) * scale;
  const bool fits = __builtin_fabs(value) < limit;  // false for NaN
  refused += fits ? 0 : 1;
  return __builtin_rint((fits ? value : 0.0) * 0x1p44);
}

template <typename T>
int64_t store_fixed(const T* x, double scale, double limit, int64_t* sum, int64_t count) {
  int64_t refused = 0;
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) sum[e] = static_cast<int64_t>(to_grid(x[e], scale, limit, refused));
  return refused;
}

template <typename T>
bool all_zero(const T* x, int64_t count) {
  bool other = false;
  for (int64_t e = 0; e < count; ++e) other |= !(read(x[e]) == 0);  // a NaN is no zero
  return !other;
}

// Reads only x for stretches of zeros: an embedding's gradient is mostly zeros, and the sums are twice as wide as x.
template <typename T>
int64_t add_fixed(const T* x, double scale, double limit, int64_t* sum, int64_t count) {
  constexpr int64_t kStretch = 64;
  int64_t refused = 0;
  for (int64_t first = 0; first < count; first += kStretch) {
    const int64_t end = first + kStretch < count ? first + kStretch : count;
    if (all_zero(x + first, end - first)) continue;
#pragma GCC ivdep
    for (int64_t e = first; e < end; ++e) {
      const auto term = static_cast<uint64_t>(static_cast<int64_t>(to_grid(x[e], scale, limit, refused)));
      sum[e] = static_cast<int64_t>(static_cast<uint64_t>(sum[e]) + term);
    }
  }
  return refused;
}

template <typename T>
void read_fixed(const int64_t* sum, T* out, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) out[e] = write<T>(static_cast<double>(sum[e]) * 0x1p-44);
}

template <typename T, typename To>
int64_t round_fixed(const T* x, double scale, double limit, To* out, int64_t count) {
  int64_t refused = 0;
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e)
    out[e] = write<To>((to_grid(x[e], scale, limit, refused) + 0.0) * 0x1p-44);  // + 0.0: no -0, as with integers
  return refused;
}
