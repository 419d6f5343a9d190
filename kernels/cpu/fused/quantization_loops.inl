// Included once for each instruction set by quantization.cpp.

// The bits of the largest magnitude; those of a NaN are larger than those of an infinity, and those larger than any number's.
inline uint32_t largest_magnitude(const float* x) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < kQuantizedBlock; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

template <int kBits>
void quantize_block(const float* x, uint8_t* packed) {
  constexpr auto kLargest = static_cast<float>(largest_code(kBits));
  const uint32_t bits = largest_magnitude(x);
  const float largest = std::bit_cast<float>(bits);
  const bool finite = bits < 0x7f800000u, zeros = largest < 0x1p-100f;
  const float scale = finite ? (zeros ? 0.0f : largest / kLargest) : std::numeric_limits<float>::quiet_NaN();
  const float inverse = finite && !zeros ? kLargest / largest : 0.0f;
  int8_t codes[kQuantizedBlock];
  for (int64_t i = 0; i < kQuantizedBlock; ++i) codes[i] = finite ? static_cast<int8_t>(std::rint(x[i] * inverse)) : int8_t{0};
  if constexpr (kBits == 8) {
    std::memcpy(packed, codes, kQuantizedBlock);
  } else {
    for (int64_t i = 0; i < kQuantizedBlock / 2; ++i)
      packed[i] = static_cast<uint8_t>((codes[2 * i] + 8) | (codes[2 * i + 1] + 8) << 4);
  }
  std::memcpy(packed + kQuantizedBlock * kBits / 8, &scale, sizeof(scale));
}

template <typename T, int kBits>
void quantize(const T* x, uint8_t* packed, int64_t blocks) {
  for (int64_t block = 0; block < blocks; ++block) {
    float values[kQuantizedBlock];
    for (int64_t i = 0; i < kQuantizedBlock; ++i) values[i] = static_cast<float>(x[block * kQuantizedBlock + i]);
    quantize_block<kBits>(values, packed + block * quantized_block_bytes(kBits));
  }
}

template <typename T, int kBits, bool kAdd>
void dequantize(const uint8_t* packed, T* out, int64_t blocks) {
  for (int64_t block = 0; block < blocks; ++block) {
    const uint8_t* const codes = packed + block * quantized_block_bytes(kBits);
    T* const to = out + block * kQuantizedBlock;
    float scale;
    std::memcpy(&scale, codes + kQuantizedBlock * kBits / 8, sizeof(scale));
    for (int64_t i = 0; i < kQuantizedBlock; ++i) {
      const int code = kBits == 8 ? static_cast<int>(static_cast<int8_t>(codes[i])) : (codes[i / 2] >> i % 2 * 4 & 15) - 8;
      const float value = static_cast<float>(code) * scale;
      to[i] = static_cast<T>(kAdd ? static_cast<float>(to[i]) + value : value);
    }
  }
}
