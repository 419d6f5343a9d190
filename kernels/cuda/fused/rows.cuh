// Helps kernels in which each group of threads (a warp, or a block if rows are long) has a row and keeps it in
// registers, so that several passes over it read memory once.
#pragma once

#include <bit>

#include "kernels/cuda/fused/elements.cuh"
#include "kernels/cuda/reduce.cuh"

namespace trivet::kernels::cuda {

// One thread's share of kStreams rows of the same length: every kGroup-th pack, in a group of kGroup threads. kPacks is the
// largest number of packs that a thread has. If it is 0, the row is not kept, and each pass reads it again, one element at a
// time.
template <typename T, int kStreams, int kGroup, int kPacks>
class Row {
 public:
  static constexpr int kWidth = kPackOf<T>;

  __device__ __forceinline__ Row(const T* const (&rows)[kStreams], int cols, int lane) : cols_(cols), lane_(lane) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
#pragma unroll
      for (int s = 0; s < kStreams; ++s)
        if (column(p) < cols_) packs_[p].of[s] = *reinterpret_cast<const Words*>(rows[s] + column(p));
  }
  // Stream 0 becomes body(first column, packs of the streams), which is also written to `out`, a row that may be one of the
  // streams.
  template <typename Body>
  __device__ __forceinline__ void replace_first(T* out, const Body& body) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (column(p) < cols_) {
        const Pack<T, kWidth> pack = body(column(p), unpacked(packs_[p]).of);
        store_pack(out + column(p), pack);
        packs_[p].of[0] = std::bit_cast<Words>(pack);
      }
  }
  // body(first column, packs of the streams), in the order of columns
  template <typename Body>
  __device__ __forceinline__ void for_each(const Body& body) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (column(p) < cols_) body(column(p), unpacked(packs_[p]).of);
  }

 private:
  struct alignas(kAccessBytes) Words {
    uint32_t words[kAccessBytes / 4];
  };
  struct PackedPacks {
    Words of[kStreams];
  };
  struct Packs {
    Pack<T, kWidth> of[kStreams];
  };
  // Between passes, elements of 16 bits stay in pairs. The compiler would otherwise unpack a row once, into twice as many
  // registers; the empty statement hides from it that the words are the same in each pass.
  static __device__ __forceinline__ Packs unpacked(PackedPacks packed) {
    Packs packs;
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
#pragma unroll
      for (uint32_t& word : packed.of[s].words) asm volatile("" : "+r"(word));
      packs.of[s] = std::bit_cast<Pack<T, kWidth>>(packed.of[s]);
    }
    return packs;
  }
  __device__ __forceinline__ int column(int p) const { return (p * kGroup + lane_) * kWidth; }

  PackedPacks packs_[kPacks];
  int cols_, lane_;
};

template <typename T, int kStreams, int kGroup>
class Row<T, kStreams, kGroup, 0> {
 public:
  static constexpr int kWidth = 1;

  __device__ __forceinline__ Row(const T* const (&rows)[kStreams], int cols, int lane) : cols_(cols), lane_(lane) {
#pragma unroll
    for (int s = 0; s < kStreams; ++s) rows_[s] = rows[s];
  }
  template <typename Body>
  __device__ __forceinline__ void for_each(const Body& body) const {
    for (int col = lane_; col < cols_; col += kGroup) {
      Pack<T, 1> elements[kStreams];
#pragma unroll
      for (int s = 0; s < kStreams; ++s) elements[s] = load_pack<1>(rows_[s] + col);
      body(col, elements);
    }
  }

 private:
  const T* rows_[kStreams];
  int cols_, lane_;
};

inline constexpr int kWarpRowThreads = 128;  // in a block whose warps have a row each

template <int kGroup>
inline constexpr int kRowThreads = kGroup == kWarp ? kWarpRowThreads : kGroup;

// The fewest blocks that a multiprocessor must hold at a time. While one row is summed, the loads of others must keep memory
// busy: 32 warps do that, with 64 registers for a thread, or 24 with 80 if a thread has more packs. Arithmetic in double, and
// dropout, need more registers than that leaves.
template <typename T, int kStreams, int kGroup, int kPacks, bool kDrops = false>
constexpr int row_blocks_at_a_time() {
  const int warps = sizeof(T) == 8 ? 16 : kDrops ? 20 : kStreams * kPacks <= 9 ? 32 : 24;
  return std::max(1, warps * kWarp / kRowThreads<kGroup>);
}

// Calls body.operator()<kGroup, kPacks>() for rows of `cols` elements of T. `aligned`: all tensors are aligned to 16 bytes.
template <typename T, typename Body>
void dispatch_row(int64_t cols, bool aligned, const Body& body) {
  constexpr int kWidth = kPackOf<T>;
  if (!aligned || cols % kWidth != 0 || cols > 512 * 4 * kWidth) return body.template operator()<256, 0>();
  const int64_t packs = cols / kWidth;
  if (packs <= 2 * kWarp) return body.template operator()<kWarp, 2>();
  if (packs <= 3 * kWarp) return body.template operator()<kWarp, 3>();
  if (packs <= 4 * kWarp) return body.template operator()<kWarp, 4>();
  if (packs <= 2 * 128) return body.template operator()<128, 2>();
  if (packs <= 3 * 128) return body.template operator()<128, 3>();
  if (packs <= 4 * 128) return body.template operator()<128, 4>();
  if (packs <= 2 * 512) return body.template operator()<512, 2>();
  body.template operator()<512, 4>();
}

// Calls body(row, lane) for the rows of the thread's group. All threads of a group go through the same rows.
template <int kGroup, typename Body>
__device__ __forceinline__ void for_each_row(int64_t rows, const Body& body) {
  constexpr int kRows = kRowThreads<kGroup> / kGroup;
  const int group = static_cast<int>(threadIdx.x) / kGroup, lane = static_cast<int>(threadIdx.x) % kGroup;
  for (int64_t row = int64_t{blockIdx.x} * kRows + group; row < rows; row += int64_t{gridDim.x} * kRows) body(row, lane);
}
template <int kGroup>
unsigned row_blocks(int64_t rows, const Launch& launch) {
  constexpr int kRows = kRowThreads<kGroup> / kGroup;
  return grid_blocks((rows + kRows - 1) / kRows, launch);
}

}  // namespace trivet::kernels::cuda
