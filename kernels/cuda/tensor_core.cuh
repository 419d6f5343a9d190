// The instructions for tensor cores and for copies into shared memory (PTX ISA, "Warp Level Matrix Instructions" and
// "cp.async"; sm_80 and later), one function each. All lanes of a warp must call the functions on matrices together. The fake
// device of the tests has the same functions in plain C++ (tests/cuda/shim/tensor_core_emulation.h).
//
// A warp holds matrices as follows, with lane = 4 g + t (the ISA's groupID and threadID_in_group), two 16-bit numbers
// to a register, the first in its lower half:
//
//   A [16, 16]:  a[0] = row g,     columns 2t, 2t + 1        B [16, 8]:  b0 = rows 2t, 2t + 1,     column g
//                a[1] = row g + 8, columns 2t, 2t + 1                    b1 = rows 2t + 8, 2t + 9, column g
//                a[2] = row g,     columns 2t + 8, 2t + 9    C [16, 8]:  c[0], c[1] = row g,     columns 2t, 2t + 1
//                a[3] = row g + 8, columns 2t + 8, 2t + 9                c[2], c[3] = row g + 8, columns 2t, 2t + 1
//
// So a C of 16 columns, two tiles side by side, rounded and packed, is an A; no lane needs another one's numbers.
#pragma once

#ifndef __CUDACC__
#include "tensor_core_emulation.h"
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace trivet::kernels::cuda {

// The index of a thread in a one-dimensional block, and of a block in a one-dimensional grid. Every call executes the
// instruction, so that values derived from an index are computed again: that is cheap, and compilers would otherwise keep them
// in registers throughout a kernel.
__device__ __forceinline__ int thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}
__device__ __forceinline__ int block_index() {
  int index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
  return index;
}

// c += a b, with a and b of type T (__nv_bfloat16 or __half) and sums in float.
template <typename T>
__device__ __forceinline__ void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    static_assert(std::is_same_v<T, __half>);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Four matrices of 8 x 8 numbers of 16 bits. Lane 8 m + i gives the address of row i of matrix m: 16 bytes in shared memory,
// aligned to 16. r[m] = row g, columns 2t and 2t + 1 of matrix m.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// Loads the same for the transposed matrices: r[m] = rows 2t and 2t + 1, column g of what the addresses point to.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// Starts a copy of 16 bytes that bypasses the first-level cache. If `valid` is false, it copies 16 zero bytes; `from` must be a
// valid address all the same. Both addresses are aligned to 16 bytes.
__device__ __forceinline__ void cp_async_16(void* to_shared, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to_shared)),
               "l"(__cvta_generic_to_global(from)), "r"(valid ? 16 : 0)
               : "memory");
}

// Closes the group of copies that this thread has started since it closed the last group.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for all groups of this thread except the kPending latest ones. Copies by other threads are visible only after a
// barrier.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Rounds two numbers into a register, `low` in its lower half.
template <typename T>
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
  uint32_t packed;
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// 2^x with a relative error of at most 2^-22; 0 if that is below the normal range.
__device__ __forceinline__ float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace trivet::kernels::cuda

#endif
