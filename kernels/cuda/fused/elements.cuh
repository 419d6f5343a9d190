// The three forms of element-wise kernels: over one flat range, over several of them, and over rows and columns.
//
// An Op says what is done to the elements:
//   bool begin()                         called once per thread, by all threads of a block; false: there is nothing to do
//   auto load<N>(first)                  reads elements [first, first + N)
//   void finish<N>(first, loaded)        computes and writes them; may overwrite what it has read
// A thread can thus have the loads of several packs in flight before it uses the first.
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
// The most blocks per multiprocessor: several times what it holds at once, so that it stays busy until the end.
inline constexpr int64_t kBlocksPerMultiprocessor = 32;

inline unsigned grid_blocks(int64_t wanted, const Launch& launch) {
  return static_cast<unsigned>(std::clamp<int64_t>(wanted, 1, launch.multiprocessors * kBlocksPerMultiprocessor));
}

// Processes the share of a range that belongs to block `block` of `blocks`.
template <int kPack, int kUnroll, typename Op>
__device__ __forceinline__ void go_over_packs(int64_t count, Op& op, unsigned block, unsigned blocks) {
  if (!op.begin()) return;
  const int64_t packs = count / kPack, step = int64_t{blocks} * kElementThreads;
  const int64_t thread = int64_t{block} * kElementThreads + threadIdx.x;
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

template <int kPack, int kUnroll, typename Op>
__global__ void __launch_bounds__(kElementThreads) for_each_pack(int64_t count, Op op) {
  go_over_packs<kPack, kUnroll>(count, op, blockIdx.x, gridDim.x);
}

inline unsigned element_blocks(int64_t count, int per_thread, const Launch& launch) {
  const int64_t per_block = int64_t{kElementThreads} * per_thread;
  return grid_blocks((count + per_block - 1) / per_block, launch);
}

// kUnroll: packs in flight at a time; 1 for an Op that reads many tensors.
template <int kPack, int kUnroll, typename Op>
void launch_elements(const Op& op, int64_t count, bool aligned, const Launch& launch) {
  if (count == 0) return;
  const unsigned blocks = element_blocks(count, (aligned ? kPack : 1) * kUnroll, launch);
  const auto kernel = aligned ? &for_each_pack<kPack, kUnroll, Op> : &for_each_pack<1, kUnroll, Op>;
  TRIVET_LAUNCH(kernel, blocks, kElementThreads, 0, launch.stream, count, op);
}

// Ranges that one launch processes, each with blocks of its own, so that short ranges do not cost a launch each. A list has as
// many as fit into the 4 KiB of a launch's arguments.
template <typename Op>
struct RangeList {
  struct Range {
    Op op;
    int64_t count;
    unsigned end_block;  // within the grid
    bool aligned;
  };
  static constexpr int kMost = (4096 - 16) / static_cast<int>(sizeof(Range));
  Range ranges[kMost];
};

template <int kPack, typename Op>
__global__ void __launch_bounds__(kElementThreads) for_each_range(const __grid_constant__ RangeList<Op> list) {
  int range = 0;
  while (blockIdx.x >= list.ranges[range].end_block) ++range;
  const unsigned first_block = range == 0 ? 0 : list.ranges[range - 1].end_block;
  const unsigned block = blockIdx.x - first_block, blocks = list.ranges[range].end_block - first_block;
  Op op = list.ranges[range].op;
  if (list.ranges[range].aligned)
    go_over_packs<kPack, 1>(list.ranges[range].count, op, block, blocks);
  else
    go_over_packs<1, 1>(list.ranges[range].count, op, block, blocks);
}

// make(i, range) fills in the op, count and alignment of range i. The `size` ranges are launched in as few lists as can hold
// them.
template <int kPack, typename Op, typename Make>
void launch_ranges(size_t size, const Make& make, const Launch& launch) {
  RangeList<Op> list{};
  int filled = 0;
  unsigned blocks = 0;
  for (size_t i = 0; i < size; ++i) {
    auto& range = list.ranges[filled];
    make(i, range);
    if (range.count > 0) {
      blocks += element_blocks(range.count, range.aligned ? kPack : 1, launch);
      range.end_block = blocks;
      ++filled;
    }
    if (filled == 0 || (filled < RangeList<Op>::kMost && i + 1 < size)) continue;
    TRIVET_LAUNCH((for_each_range<kPack, Op>), blocks, kElementThreads, 0, launch.stream, list);
    filled = 0;
    blocks = 0;
  }
}

// Does the same for [rows, cols]: the Op has load<N>(row, col) and finish<N>(row, col, loaded). A thread keeps its
// columns. kPack divides cols. begin() is optional, returns nothing, and is not called by threads without columns.
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
