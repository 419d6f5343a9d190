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

// Rounds to the grid and adds or stores; returns how many values do not fit, which count as 0.
template <typename T, bool kAccumulate>
int64_t make_fixed(const T* x, double scale, double limit, int64_t* sum, int64_t count) {
  int64_t refused = 0;
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) {
    const double value = static_cast<double>(read(x[e])) * scale;
    const bool fits = __builtin_fabs(value) < limit;  // false for NaN
    const double grid = __builtin_rint((fits ? value : 0.0) * 0x1p44);
    refused += fits ? 0 : 1;
    const uint64_t before = kAccumulate ? static_cast<uint64_t>(sum[e]) : 0;
    sum[e] = static_cast<int64_t>(before + static_cast<uint64_t>(static_cast<int64_t>(grid)));
  }
  return refused;
}

template <typename T>
void read_fixed(const int64_t* sum, double scale, T* out, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) out[e] = write<T>(static_cast<double>(sum[e]) * 0x1p-44 * scale);
}
