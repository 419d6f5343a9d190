// A pack is several adjacent elements, moved by one access of up to 16 bytes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/numbers.cuh"

namespace trivet::kernels::cuda {

inline constexpr int kAccessBytes = 16;  // the widest access of a thread

template <typename T, int kCount>
struct alignas(std::min<size_t>(kAccessBytes, sizeof(T) * kCount)) Pack {
  T values[kCount];
  __device__ __forceinline__ T& operator[](int i) { return values[i]; }
  __device__ __forceinline__ const T& operator[](int i) const { return values[i]; }
};

// The number of elements that a thread moves at a time in a kernel on tensors of these types: 16 bytes of the widest
// type, so that a warp moves contiguous elements of each tensor with one instruction.
template <typename... T>
inline constexpr int kPackOf = kAccessBytes / static_cast<int>(std::max({sizeof(T)...}));

template <int kCount, typename T>
__device__ __forceinline__ Pack<T, kCount> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, kCount>*>(from);
}
template <typename T, int kCount>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, kCount>& pack) {
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

// Checks whether packs of kCount elements may start at all of these addresses. Absent tensors are null and fit.
template <int kCount, typename... T>
bool aligned_for_packs(const T*... data) {
  return (... && (reinterpret_cast<uintptr_t>(data) % alignof(Pack<T, kCount>) == 0));
}

}  // namespace trivet::kernels::cuda
