#include "kernels/cpu/fused/numbers.inl"

inline float to_float(float value) { return value; }
inline float to_float(double value) { return static_cast<float>(value); }

template <typename T>
uint32_t largest_magnitude(const T* x, int64_t count) {
  uint32_t largest = 0;
  for (int64_t e = 0; e < count; ++e) {
    const uint32_t bits = magnitude_bits(to_float(read(x[e])));
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

template <typename T>
void quantize_to_bytes(const T* x, float scale, uint8_t* values, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) values[e] = static_cast<uint8_t>(quantized(to_float(read(x[e])), scale, 127.0f));
}

template <typename T>
void quantize_to_halves(const T* x, float scale, uint8_t* values, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e + 1 < count; e += 2)
    values[e / 2] =
        two_quantized(quantized(to_float(read(x[e])), scale, 7.0f), quantized(to_float(read(x[e + 1])), scale, 7.0f));
  if (count % 2 == 1) values[count / 2] = two_quantized(quantized(to_float(read(x[count - 1])), scale, 7.0f), 0);
}

template <typename T>
void dequantize_bytes(const uint8_t* values, float scale, bool accumulate, T* out, int64_t count) {
#pragma GCC ivdep
  for (int64_t e = 0; e < count; ++e) {
    const float value = static_cast<float>(static_cast<int8_t>(values[e])) * scale;
    out[e] = accumulate ? write<T>(read(out[e]) + value) : write<T>(value);
  }
}

template <typename T>
void dequantize_halves(const uint8_t* values, float scale, bool accumulate, T* out, int64_t count) {
  for (int64_t e = 0; e < count; ++e) {
    const float value = static_cast<float>(one_quantized(values[e / 2], static_cast<int>(e % 2))) * scale;
    out[e] = accumulate ? write<T>(read(out[e]) + value) : write<T>(value);
  }
}
