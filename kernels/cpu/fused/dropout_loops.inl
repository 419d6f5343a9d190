#include "kernels/cpu/fused/numbers.inl"

// The random words of `blocks` consecutive blocks, four per block: core/random.h's philox for many counters at once.
inline void philox_words(uint64_t key, uint64_t first_block, uint64_t counter_high, uint32_t* words, int64_t blocks) {
  for (int64_t block = 0; block < blocks; ++block) {
    const uint64_t counter = first_block + static_cast<uint64_t>(block);
    uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
    uint32_t c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c1 = static_cast<uint32_t>(p1);
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c3 = static_cast<uint32_t>(p0);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    words[4 * block] = c0;
    words[4 * block + 1] = c1;
    words[4 * block + 2] = c2;
    words[4 * block + 3] = c3;
  }
}

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

// For rate 0, which needs no random words.
template <typename T>
void add_into(const T* residual, const T* x, T* out, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) out[e] = write<T>(read(residual[e]) + read(x[e]));
}
