// The functions of kernels/cuda/tensor_core.cuh on the fake device.
//
// They are written from the PTX ISA alone, sections "Matrix Fragments for mma.m16n8k16 with floating point type", "ldmatrix"
// and "cp.async": a warp's matrices are put together from its lanes by the formulas there, multiplied as matrices, and taken
// apart. A copy takes place when its thread waits for it, and until then its destination is full of 0xFF: a thread that forgets
// to wait, or waits for too few copies, computes with NaN. A launch fails if an address is not aligned or not in the block's
// dynamic shared memory, if a thread never waits for a copy, or if the lanes of a warp do not meet.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "device_code.h"

namespace cuda_shim {

void mma_m16n8k16(float (&c)[4], const float (&a)[8], const float (&b)[4]);
void ldmatrix_x4(uint32_t (&r)[4], const void* row, bool transposed);
void cp_async_16(void* to, const void* from, bool valid);
void cp_async_commit();
void cp_async_wait(int pending);

// For the scheduler of blocks: forgets the copies that the thread has not waited for, and returns how many groups they were in.
int forget_copies(int thread);

}  // namespace cuda_shim

namespace trivet::kernels::cuda {

inline int thread_index() { return static_cast<int>(threadIdx.x); }
inline int block_index() { return static_cast<int>(blockIdx.x); }

template <typename T>
float lower_half(uint32_t pair) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __ushort_as_bfloat16(static_cast<unsigned short>(pair));
  else
    return __ushort_as_half(static_cast<unsigned short>(pair));
}

template <typename T>
void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const float a_numbers[8] = {lower_half<T>(a[0]), lower_half<T>(a[0] >> 16), lower_half<T>(a[1]), lower_half<T>(a[1] >> 16),
                              lower_half<T>(a[2]), lower_half<T>(a[2] >> 16), lower_half<T>(a[3]), lower_half<T>(a[3] >> 16)};
  const float b_numbers[4] = {lower_half<T>(b0), lower_half<T>(b0 >> 16), lower_half<T>(b1), lower_half<T>(b1 >> 16)};
  cuda_shim::mma_m16n8k16(c, a_numbers, b_numbers);
}

inline void ldmatrix_x4(uint32_t (&r)[4], const void* row) { cuda_shim::ldmatrix_x4(r, row, false); }
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) { cuda_shim::ldmatrix_x4(r, row, true); }
inline void cp_async_16(void* to_shared, const void* from, bool valid) { cuda_shim::cp_async_16(to_shared, from, valid); }
inline void cp_async_commit() { cuda_shim::cp_async_commit(); }
template <int kPending>
void cp_async_wait() {
  cuda_shim::cp_async_wait(kPending);
}

template <typename T>
uint32_t pack_pair(float low, float high) {
  const T pair[2] = {low, high};
  return std::bit_cast<uint32_t>(pair);
}

inline float exp2_approximate(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0.0f : y;  // ftz
}

}  // namespace trivet::kernels::cuda
