// Everything that device code uses: qualifiers, built-in variables, barriers, warp operations, atomics, mathematics.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "vector_types.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__
// The threads of a block are fibers of one thread of the operating system, and no two blocks share such a thread at a time.
// Without constinit the compiler might add a hidden flag, "initialized", which all fibers would write.
#define __shared__ static constinit thread_local

// These belong to the fiber that runs now.
extern constinit thread_local uint3 threadIdx, blockIdx;
extern constinit thread_local dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace cuda_shim {

extern constinit thread_local int lane;                       // the running fiber's, in its warp
extern constinit thread_local unsigned char* dynamic_shared;  // the block's, 1024-byte aligned

void block_barrier();
enum class WarpOperation { Barrier, Shuffle, Vote, Matrix };
// Returns, by lane, the values that the lanes of `mask` gave. Lanes that the block does not have, or that are not in `mask`,
// read as all ones. Valid until the caller's next barrier or warp operation.
const uint64_t* exchange(WarpOperation operation, uint32_t mask, uint64_t value);

template <typename T>
T shuffle(uint32_t mask, T value, int from) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  const uint64_t read = exchange(WarpOperation::Shuffle, mask, bits)[from];
  std::memcpy(&value, &read, sizeof value);
  return value;
}
// The first lane of the caller's group of `width` lanes.
inline int group_start(int width) { return lane & ~(width - 1); }

}  // namespace cuda_shim

#define TRIVET_DYNAMIC_SHARED(type, name) type* const name = reinterpret_cast<type*>(::cuda_shim::dynamic_shared)

// ---- barriers and warps

inline void __syncthreads() { cuda_shim::block_barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { cuda_shim::exchange(cuda_shim::WarpOperation::Barrier, mask, 0); }

template <typename T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  return cuda_shim::shuffle(mask, value, cuda_shim::group_start(width) | (from & (width - 1)));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const int from = cuda_shim::lane ^ lane_mask;
  return cuda_shim::shuffle(mask, value, from < cuda_shim::group_start(width) + width ? from : cuda_shim::lane);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int from = cuda_shim::lane + static_cast<int>(delta);
  return cuda_shim::shuffle(mask, value, from < cuda_shim::group_start(width) + width ? from : cuda_shim::lane);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int from = cuda_shim::lane - static_cast<int>(delta);
  return cuda_shim::shuffle(mask, value, from >= cuda_shim::group_start(width) ? from : cuda_shim::lane);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const uint64_t* votes = cuda_shim::exchange(cuda_shim::WarpOperation::Vote, mask, predicate != 0);
  unsigned ballot = 0;
  for (int i = 0; i < warpSize; ++i)
    if (votes[i] == 1) ballot |= 1u << i;
  return ballot;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

// ---- memory

template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long>,
                "atomicAdd is for int, unsigned and unsigned long long; sums of floats need a fixed order");
  return std::atomic_ref<T>(*address).fetch_add(value, std::memory_order_relaxed);
}
template <typename T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_or(value, std::memory_order_relaxed);
}
template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).exchange(value, std::memory_order_relaxed);
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  std::atomic_ref<T>(*address).compare_exchange_strong(expected, value, std::memory_order_relaxed);
  return expected;
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  std::atomic_ref<T> word(*address);
  T seen = word.load(std::memory_order_relaxed);
  while (seen < value && !word.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
  return seen;
}
template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  std::atomic_ref<T> word(*address);
  T seen = word.load(std::memory_order_relaxed);
  while (value < seen && !word.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
  return seen;
}
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_block() { std::atomic_thread_fence(std::memory_order_seq_cst); }

// Cache hints, which have no effect here.
template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
T __ldcs(const T* address) {
  return *address;
}
template <typename T>
T __ldcg(const T* address) {
  return *address;
}
template <typename T>
void __stcs(T* address, std::type_identity_t<T> value) {
  *address = value;
}
template <typename T>
void __stcg(T* address, std::type_identity_t<T> value) {
  *address = value;
}

// ---- mathematics: the fast forms are exact here

using std::max;
using std::min;
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0 ? std::min(x, 1.0f) : 0.0f; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline double __fma_rn(double x, double y, double z) { return std::fma(x, y, z); }
// The volatile results keep the compiler from contracting a product and a sum.
inline float __fmul_rn(float x, float y) {
  volatile float product = x * y;
  return product;
}
inline float __fadd_rn(float x, float y) {
  volatile float sum = x + y;
  return sum;
}
inline float __fsub_rn(float x, float y) { return __fadd_rn(x, -y); }
inline double __dmul_rn(double x, double y) {
  volatile double product = x * y;
  return product;
}
inline double __dadd_rn(double x, double y) {
  volatile double sum = x + y;
  return sum;
}
inline double __dsub_rn(double x, double y) { return __dadd_rn(x, -y); }

inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline long long __float2ll_rn(float x) { return static_cast<long long>(std::nearbyint(x)); }
inline long long __double2ll_rn(double x) { return static_cast<long long>(std::nearbyint(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline double __ll2double_rn(long long x) { return static_cast<double>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline unsigned __umulhi(unsigned x, unsigned y) { return static_cast<unsigned>(static_cast<uint64_t>(x) * y >> 32); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
