// The two shapes of element-wise kernels: a flat range, and rows with columns.
//
// What is done to elements is an Op:
//   bool begin()                         once per thread, by all threads of a block; false: nothing is to be done
//   auto load<N>(first)                  reads elements [first, first + N)
//   void finish<N>(first, loaded)        computes and writes them; may write over what it has read
// so that a thread has the loads of several packs under way before it uses the first.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cuda/launch.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/packs.cuh"

namespace trivet::kernels::cuda {

struct ElementOp {
  __device__ bool begin() { return true; }
};

inline constexpr int kElementThreads = 256;
// Blocks a multiprocessor is given at most: several times what it holds, so that it never runs dry towards the end.
inline constexpr int64_t kBlocksPerMultiprocessor = 32;

inline unsigned grid_blocks(int64_t wanted, const Launch& launch) {
  return static_cast<unsigned>(std::clamp<int64_t>(wanted, 1, launch.multiprocessors * kBlocksPerMultiprocessor));
}

template <int kPack, int kUnroll, typename Op>
__global__ void __launch_bounds__(kElementThreads) for_each_pack(int64_t count, Op op) {
  if (!op.begin()) return;
  const int64_t packs = count / kPack, step = int64_t{gridDim.x} * kElementThreads;
  const int64_t thread = int64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  int64_t pack = thread;
  for (; pack + (kUnroll - 1) * step < packs; pack += kUnroll * step) {
    decltype(op.template load<kPack>(0)) loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) loaded[u] = op.template load<kPack>((pack + u * step) * kPack);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) op.template finish<kPack>((pack + u * step) * kPack, loaded[u]);
  }
  for (; pack < packs; pack += step) op.template finish<kPack>(pack * kPack, op.template load<kPack>(pack * kPack));
  if constexpr (kPack > 1)
    if (const int64_t rest = packs * kPack + thread; rest < count) op.template finish<1>(rest, op.template load<1>(rest));
}

// kUnroll: packs under way at a time; 1 where an Op reads several streams.
template <int kPack, int kUnroll, typename Op>
void launch_elements(const Op& op, int64_t count, bool aligned, const Launch& launch) {
  if (count == 0) return;
  const int64_t per_thread = (aligned ? kPack : 1) * kUnroll;
  const unsigned blocks = grid_blocks((count + kElementThreads * per_thread - 1) / (kElementThreads * per_thread), launch);
  const auto kernel = aligned ? &for_each_pack<kPack, kUnroll, Op> : &for_each_pack<1, kUnroll, Op>;
  TRIVET_LAUNCH(kernel, blocks, kElementThreads, 0, launch.stream, count, op);
}

// The same for [rows, cols]: load<N>(row, col), finish<N>(row, col, loaded). A thread keeps its columns. kPack divides cols.
// begin() may be missing, returns nothing and is not called by threads without columns.
template <int kPack, int kUnroll, typename Op>
__global__ void __launch_bounds__(kElementThreads) for_each_row_pack(int64_t rows, int64_t cols, Op op) {
  const int64_t col = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kPack;
  const int64_t step = int64_t{gridDim.y} * blockDim.y;
  if (col >= cols) return;
  if constexpr (requires { op.begin(); }) op.begin();
  int64_t row = int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
  for (; row + (kUnroll - 1) * step < rows; row += kUnroll * step) {
    decltype(op.template load<kPack>(0, 0)) loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) loaded[u] = op.template load<kPack>(row + u * step, col);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) op.template finish<kPack>(row + u * step, col, loaded[u]);
  }
  for (; row < rows; row += step) op.template finish<kPack>(row, col, op.template load<kPack>(row, col));
}

template <int kPack, int kUnroll, typename Op>
void launch_row_packs(const Op& op, int64_t rows, int64_t cols, const Launch& launch) {
  const int64_t packs = cols / kPack;
  unsigned across = 1;
  while (across < kElementThreads && across < packs) across *= 2;
  const unsigned down = kElementThreads / across;
  const int64_t col_blocks = (packs + across - 1) / across, row_blocks = (rows + down * kUnroll - 1) / (down * kUnroll);
  const int64_t most = std::max<int64_t>(1, launch.multiprocessors * kBlocksPerMultiprocessor / col_blocks);
  const dim3 grid(static_cast<unsigned>(col_blocks), static_cast<unsigned>(std::min({row_blocks, most, int64_t{65535}})));
  const auto kernel = &for_each_row_pack<kPack, kUnroll, Op>;
  TRIVET_LAUNCH(kernel, grid, dim3(across, down), 0, launch.stream, rows, cols, op);
}
template <int kPack, int kUnroll, typename Op>
void launch_rows(const Op& op, int64_t rows, int64_t cols, bool aligned, const Launch& launch) {
  if (rows == 0 || cols == 0) return;
  if (aligned && cols % kPack == 0)
    launch_row_packs<kPack, kUnroll>(op, rows, cols, launch);
  else
    launch_row_packs<1, kUnroll>(op, rows, cols, launch);
}

}  // namespace trivet::kernels::cuda
