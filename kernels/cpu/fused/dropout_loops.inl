#include "kernels/cpu/fused/numbers.inl"
#include "kernels/cpu/philox_words.inl"

template <typename Sum>
inline Sum drop(Sum value, uint32_t word, float rate, Sum keep) {
  const float draw = static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24f;
  const Sum kept = value / keep;
  return draw < rate ? Sum(0) : kept;
}

template <typename T>
void drop_words(const T* x, const uint32_t* words, float rate, T* out, int64_t count) {
  const SumOf<T> keep = SumOf<T>(1) - static_cast<SumOf<T>>(rate);
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) out[e] = write<T>(drop(read(x[e]), words[e], rate, keep));
}

template <typename T>
void add_drop_words(const T* residual, const T* x, const uint32_t* words, float rate, T* out, int64_t count) {
  const SumOf<T> keep = SumOf<T>(1) - static_cast<SumOf<T>>(rate);
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) out[e] = write<T>(read(residual[e]) + drop(read(x[e]), words[e], rate, keep));
}

// Adds at rate 0, which needs no random words.
template <typename T>
void add_into(const T* residual, const T* x, T* out, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) out[e] = write<T>(read(residual[e]) + read(x[e]));
}
