// The arithmetic of block quantisation (kernels/kernels.h, Quantize), shared by all devices.
#pragma once

#include <bit>
#include <cstdint>

#include "core/host_device.h"

namespace trivet::kernels {

constexpr float largest_quantized(int bits) { return bits == 8 ? 127.0f : 7.0f; }

// |x| as an integer that orders by magnitude, with infinity and then NaN above all numbers.
TRIVET_HOST_DEVICE inline uint32_t magnitude_bits(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; }

// The scale of a block; `bits` is the largest of its magnitude_bits.
TRIVET_HOST_DEVICE inline float scale_of_block(uint32_t bits, float largest) {
  return bits < 0x7f800000u ? std::bit_cast<float>(bits) / largest : std::bit_cast<float>(0x7fc00000u);
}

// Adding and subtracting 1.5 x 2^23 rounds to the nearest integer, ties to even. If the scale is 0 or NaN, the value is 0.
TRIVET_HOST_DEVICE inline int32_t quantized(float x, float scale, float largest) {
  const float ratio = scale > 0 ? x / scale : 0.0f;
  const float bounded = ratio < -largest ? -largest : ratio > largest ? largest : ratio;
  return static_cast<int32_t>((bounded + 12582912.0f) - 12582912.0f);
}

TRIVET_HOST_DEVICE inline uint8_t two_quantized(int32_t low, int32_t high) {
  return static_cast<uint8_t>((low & 15) | (high & 15) << 4);
}
// Half `half` of a byte (0: the low one), with its sign.
TRIVET_HOST_DEVICE inline int32_t one_quantized(uint8_t both, int half) {
  return static_cast<int8_t>(static_cast<uint8_t>(both << (half == 0 ? 4 : 0))) >> 4;
}

}  // namespace trivet::kernels
