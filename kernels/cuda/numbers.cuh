// Conversions between the types in which a device stores numbers and those in which it computes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "core/tensor_view.h"

namespace trivet::kernels::cuda {

// Type of sums, statistics and intermediate results.
template <typename T>
using SumOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Calls body.operator()<T>() with the device's C++ type of `dtype`.
template <typename Body>
decltype(auto) dispatch_device_float(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::Float32: return body.template operator()<float>();
    case DType::BFloat16: return body.template operator()<__nv_bfloat16>();
    case DType::Float16: return body.template operator()<__half>();
    case DType::Float64: return body.template operator()<double>();
    default: throw std::logic_error("cuda kernels: not a floating-point type");
  }
}

// body.operator()<T, G>(): a parameter's gradient has the type of the activations or float32 (kernels/rules.h).
template <typename Body>
void dispatch_gradient(DType activations, DType gradient, const Body& body) {
  dispatch_device_float(activations, [&]<typename T>() {
    if (gradient == activations)
      body.template operator()<T, T>();
    else
      body.template operator()<T, float>();
  });
}

// The memory of a view whose type the caller has dispatched on.
template <typename T>
const T* data_of(const ConstTensorView& view) {
  return static_cast<const T*>(view.data);
}
template <typename T>
T* data_of(const TensorView& view) {
  return static_cast<T*>(view.data);
}

// Exact.
__device__ __forceinline__ float widen(float value) { return value; }
__device__ __forceinline__ double widen(double value) { return value; }
__device__ __forceinline__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float widen(__half value) { return __half2float(value); }

// Rounds to odd: if no float equals `value`, the result is the neighbouring float whose last bit is 1. Rounding that to 16 bits
// equals rounding `value` once.
__device__ __forceinline__ float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = static_cast<double>(nearest);
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  bits -= fabs(back) > fabs(value) ? 1u : 0u;
  bits |= back < value || back > value ? 1u : 0u;
  return std::bit_cast<float>(bits);
}

// Rounded once, to nearest even.
template <typename T, typename Sum>
__device__ __forceinline__ T narrow(Sum value) {
  if constexpr (sizeof(T) >= 4) {
    return static_cast<T>(value);
  } else {
    float rounded = 0;
    if constexpr (std::is_same_v<Sum, double>)
      rounded = round_to_odd(value);
    else
      rounded = value;
    if constexpr (std::is_same_v<T, __nv_bfloat16>)
      return __float2bfloat16_rn(rounded);
    else
      return __float2half_rn(rounded);
  }
}

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float square_root(float x) { return sqrtf(x); }
__device__ __forceinline__ double square_root(double x) { return sqrt(x); }

// a / b to 2 units in the last place, for 1 <= b: exact division takes ten times as many instructions and would make
// element-wise kernels slower than memory.
__device__ __forceinline__ float quotient(float a, float b) { return __fdividef(a, b); }
__device__ __forceinline__ double quotient(double a, double b) { return a / b; }

// The sum wraps around; CUDA has this atomic for unsigned words only.
__device__ __forceinline__ void add_atomically(int64_t* sum, int64_t term) {
  atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(term));
}

}  // namespace trivet::kernels::cuda
