// Included once for each instruction set by signs.cpp.

inline void pack_signs(float* values, const float* variance, uint8_t* packed, int64_t blocks) {
  constexpr int kSums = 32;
  for (int64_t block = 0; block < blocks;
       ++block, values += kQuantizedBlock, variance += kQuantizedBlock, packed += kSignBlockBytes) {
    float sums[kSums] = {};
    int counted = 0;
    for (int64_t i = 0; i < kQuantizedBlock; ++i) {
      const bool counts = variance[i] > 0.0f;
      sums[i % kSums] += counts ? std::fabs(values[i]) : 0.0f;
      counted += counts ? 1 : 0;
    }
    for (int half = kSums / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
    const float scale = counted == 0 ? 0.0f : sums[0] / static_cast<float>(counted);
    for (int64_t byte = 0; byte < kQuantizedBlock / 8; ++byte) {
      unsigned bits = 0;
      for (int64_t i = 8 * byte; i < 8 * byte + 8; ++i) {
        const bool negative = values[i] < 0.0f;
        bits |= static_cast<unsigned>(negative) << i % 8;
        values[i] = variance[i] > 0.0f ? values[i] - (negative ? -scale : scale) : 0.0f;
      }
      packed[byte] = static_cast<uint8_t>(bits);
    }
    std::memcpy(packed + kQuantizedBlock / 8, &scale, sizeof(scale));
  }
}

template <bool kAdd>
void unpack_signs(const uint8_t* packed, const float* variance, float weight, float* out, int64_t blocks) {
  for (int64_t block = 0; block < blocks;
       ++block, out += kQuantizedBlock, variance += kQuantizedBlock, packed += kSignBlockBytes) {
    float scale;
    std::memcpy(&scale, packed + kQuantizedBlock / 8, sizeof(scale));
    scale *= weight;
    for (int64_t i = 0; i < kQuantizedBlock; ++i) {
      const bool negative = (packed[i / 8] >> i % 8 & 1) != 0;
      const float value = variance[i] > 0.0f ? (negative ? -scale : scale) : 0.0f;
      out[i] = kAdd ? out[i] + value : value;
    }
  }
}
