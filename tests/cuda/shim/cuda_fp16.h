// float16 as CUDA's header defines it.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "device_code.h"
#include "vector_types.h"

struct __half_raw {
  unsigned short x;
};

class __half {
 public:
  __half() = default;
  __half(__half_raw raw) : bits_(raw.x) {}
  __half(float value) : bits_(std::isnan(value) ? 0x7FFF : std::bit_cast<unsigned short>(static_cast<_Float16>(value))) {}
  // Rounds only once.
  __half(double value) : bits_(std::isnan(value) ? 0x7FFF : std::bit_cast<unsigned short>(static_cast<_Float16>(value))) {}
  __half(int value) : __half(static_cast<float>(value)) {}
  operator float() const { return static_cast<float>(std::bit_cast<_Float16>(bits_)); }
  operator __half_raw() const { return {bits_}; }

 private:
  unsigned short bits_;
};
using half = __half;

struct alignas(4) __half2 {
  __half x, y;
};
using half2 = __half2;

inline float __half2float(__half x) { return x; }
inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline __half __double2half(double x) { return x; }
inline unsigned short __half_as_ushort(__half x) { return __half_raw(x).x; }
inline __half __ushort_as_half(unsigned short x) { return __half_raw{x}; }
inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline __half2 __float22half2_rn(float2 v) { return {v.x, v.y}; }
inline float2 __half22float2(__half2 v) { return {v.x, v.y}; }
inline float __low2float(__half2 v) { return v.x; }
inline float __high2float(__half2 v) { return v.y; }
