// Sums and maxima over a warp or a block, in an order that depends only on the number of threads. Every thread gets the result.
// And each thread's sum over the threads before it.
#pragma once

#include <cuda_runtime.h>

namespace trivet::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

struct Plus {
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Maximum {
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

template <typename T, typename Join>
__device__ __forceinline__ T join_warp(T value, const Join& join) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = join(value, __shfl_xor_sync(kAllLanes, value, mask));
  return value;
}

// kThreads: the threads of a warp, or of the whole block. All of them must call this.
template <int kThreads, typename T, typename Join>
__device__ __forceinline__ T join_group(T value, const Join& join) {
  value = join_warp(value, join);
  if constexpr (kThreads > kWarp) {
    __shared__ T of_warps[kThreads / kWarp];
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = of_warps[0];
#pragma unroll
    for (int warp = 1; warp < kThreads / kWarp; ++warp) value = join(value, of_warps[warp]);
    __syncthreads();  // now the next call may write
  }
  return value;
}

// Sum of `value` over the threads before this one in the block, and over all threads of the block, which must all call this.
struct Prefix {
  int before, all;
};
template <int kThreads>
__device__ Prefix prefix_of_block(int value) {
  __shared__ int of_warps[kThreads / kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  int sum = value;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const int other = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(step));
    if (lane >= step) sum += other;
  }
  __syncthreads();  // the results of an earlier call have been read
  if (lane == kWarp - 1) of_warps[warp] = sum;
  __syncthreads();
  Prefix prefix{sum - value, 0};
  for (int w = 0; w < kThreads / kWarp; ++w) {
    if (w < warp) prefix.before += of_warps[w];
    prefix.all += of_warps[w];
  }
  return prefix;
}

}  // namespace trivet::kernels::cuda
