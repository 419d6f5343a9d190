// core/random.h's philox for sixteen consecutive counters at once. Needs lanes.inl.

typedef uint64_t WideWords __attribute__((vector_size(64), may_alias));

// The upper and lower halves of 16 products of 32 bits by 32 bits.
[[gnu::always_inline]] inline void multiply_words(const Words& words, uint64_t factor, Words& high, Words& low) {
  const WideWords wide = reinterpret_cast<const WideWords&>(words), lower_half = WideWords{} + 0xffffffffu;
  const WideWords even = (wide & lower_half) * factor, odd = (wide >> 32) * factor;
  reinterpret_cast<WideWords&>(low) = (even & lower_half) | (odd << 32);
  reinterpret_cast<WideWords&>(high) = (even >> 32) | (odd & ~lower_half);
}

// words[16 q + l] for q = kQuarter is word l % 4 of block 4 q + l / 4.
template <int kQuarter>
[[gnu::always_inline]] inline void store_words(const Words* c, uint32_t* words) {
  Words pair, both;
  for (int lane = 0; lane < 16; ++lane) {
    pair[lane] = static_cast<uint32_t>(4 * kQuarter + lane / 4 + (lane % 2) * 16);
    both[lane] = static_cast<uint32_t>(lane % 4 < 2 ? lane : 16 + lane);
  }
  const Words first = __builtin_shuffle(c[0], c[1], pair), second = __builtin_shuffle(c[2], c[3], pair);
  const Words ordered = __builtin_shuffle(first, second, both);
  __builtin_memcpy(words + 16 * kQuarter, &ordered, 64);
}

// The 64 random words of blocks [first_block, first_block + 16).
[[gnu::always_inline]] inline void philox_words_of_16_blocks(uint64_t key, uint64_t first_block, uint64_t counter_high,
                                                             uint32_t* words) {
  Words c[4] = {}, index;
  for (int lane = 0; lane < 16; ++lane) index[lane] = static_cast<uint32_t>(lane);
  const uint32_t low = static_cast<uint32_t>(first_block);
  c[0] = index + low;
  c[1] = Words{} + static_cast<uint32_t>(first_block >> 32);
  c[1] += c[0] < Words{} + low ? Words{} + 1u : Words{};
  c[2] = Words{} + static_cast<uint32_t>(counter_high);
  c[3] = Words{} + static_cast<uint32_t>(counter_high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    Words high0, low0, high1, low1;
    multiply_words(c[0], 0xD2511F53u, high0, low0);
    multiply_words(c[2], 0xCD9E8D57u, high1, low1);
    c[0] = high1 ^ c[1] ^ k0;
    c[1] = low1;
    c[2] = high0 ^ c[3] ^ k1;
    c[3] = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  store_words<0>(c, words);
  store_words<1>(c, words);
  store_words<2>(c, words);
  store_words<3>(c, words);
}
