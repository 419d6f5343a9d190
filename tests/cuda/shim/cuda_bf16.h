// bfloat16 as CUDA's header defines it: the upper half of a float, rounded to nearest even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "device_code.h"
#include "vector_types.h"

struct __nv_bfloat16_raw {
  unsigned short x;
};

class __nv_bfloat16 {
 public:
  __nv_bfloat16() = default;
  __nv_bfloat16(__nv_bfloat16_raw raw) : bits_(raw.x) {}
  __nv_bfloat16(float value) : bits_(round(value)) {}
  __nv_bfloat16(double value) : bits_(round(to_odd(value))) {}
  __nv_bfloat16(int value) : __nv_bfloat16(static_cast<float>(value)) {}
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits_) << 16); }
  operator __nv_bfloat16_raw() const { return {bits_}; }

 private:
  static unsigned short round(float value) {
    if (std::isnan(value)) return 0x7FFF;
    const auto bits = std::bit_cast<uint32_t>(value);
    return static_cast<unsigned short>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
  // Returns a float that rounds to the same bfloat16 as the double: its last bit tells whether anything was lost.
  static float to_odd(double value) {
    const auto nearest = static_cast<float>(value);
    if (nearest == value || std::isnan(value)) return nearest;
    auto bits = std::bit_cast<uint32_t>(nearest);
    if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;
    return std::bit_cast<float>(bits | 1);
  }
  unsigned short bits_;
};

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
inline __nv_bfloat16 __double2bfloat16(double x) { return x; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return __nv_bfloat16_raw(x).x; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return __nv_bfloat16_raw{x}; }
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {v.x, v.y}; }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {v.x, v.y}; }
inline float __low2float(__nv_bfloat162 v) { return v.x; }
inline float __high2float(__nv_bfloat162 v) { return v.y; }
