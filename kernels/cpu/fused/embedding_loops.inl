#include "kernels/cpu/fused/numbers.inl"

template <typename T>
void add_pair(const T* left, const T* right, T* out, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) out[i] = write<T>(read(left[i]) + read(right[i]));
}

template <typename T>
void add_row(const T* dy, SumOf<T>* sums, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) sums[i] += read(dy[i]);
}

template <typename Sum, typename G>
void store_row(const Sum* sums, G* out, int64_t count, bool accumulate) {
  if (accumulate)
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) out[i] = write<G>(static_cast<Sum>(read(out[i])) + sums[i]);
  else
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) out[i] = write<G>(sums[i]);
}
