// The scratch memory of matrix products on a CUDA device (kernels/cuda/products), and how products with cuts are divided into
// blocks.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"

namespace trivet::kernels {

// The memory that cuBLASLt may use: the size that NVIDIA recommends for sm_90. It is always the same, because the choice of
// algorithm depends on it.
inline constexpr int64_t kCublasWorkspaceBytes = int64_t{32} << 20;

// Returns how many rows of out are computed at a time when partial sums are kept. The bits depend on it, so it depends
// only on the columns.
inline int64_t rows_of_block(int64_t cols) {
  constexpr int64_t kElements = int64_t{4} << 20, kRows = 128;
  return std::max(kElements / std::max<int64_t>(cols, 1) / kRows * kRows, kRows);
}

// Where the pieces of a dim end: at the given ends or, if there are none, at its own end.
inline std::vector<int64_t> ends_or(const std::vector<int64_t>& ends, int64_t size) {
  return ends.empty() ? std::vector<int64_t>{size} : ends;
}

// Offsets into a workspace: cuBLASLt's part, copies of parts of a and b, partial sums (one for each level of the tree).
struct ProductScratch {
  int64_t packed_a = kCublasWorkspaceBytes, packed_b = 0, tiles = 0, tile_bytes = 0, bytes = 0;

  explicit ProductScratch(const Matmul& args) {
    const int64_t m = args.out.shape[0], n = args.out.shape[1], k = args.transpose_a ? args.a.shape[0] : args.a.shape[1];
    const int64_t element = size_of(args.a.dtype), sum = args.a.dtype == DType::Float64 ? 8 : 4;
    const ProductCuts none;
    const ProductCuts& cuts = args.cuts ? *args.cuts : none;
    int64_t longest = 0, most_rows = 0, most_cols = 0, most_tile = 0;
    if (cuts.leaves.empty()) longest = k;
    for (const auto& leaf : cuts.leaves)
      for (const ProductCuts::Range& range : leaf) longest = std::max(longest, range.end - range.begin);
    int64_t row = 0, col = 0;
    for (int64_t col_end : ends_or(cuts.col_ends, n)) {
      const int64_t cols = col_end - col;
      col = col_end, row = 0;
      for (int64_t row_end : ends_or(cuts.row_ends, m)) {
        const int64_t rows = std::min(row_end - row, rows_of_block(cols));
        row = row_end;
        most_rows = std::max(most_rows, rows), most_cols = std::max(most_cols, cols);
        most_tile = std::max(most_tile, rows * cols);
      }
    }
    packed_b = packed_a + (args.cuts ? aligned(most_rows * longest * element) : 0);
    tiles = packed_b + (args.cuts ? aligned(most_cols * longest * element) : 0);
    tile_bytes = aligned(most_tile * sum);
    bytes = tiles + tile_bytes * static_cast<int64_t>(std::bit_width(std::max<size_t>(cuts.leaves.size(), 1)));
  }

 private:
  static int64_t aligned(int64_t size) { return (size + 255) / 256 * 256; }
};

// Partial sums are kept if there are cuts, or if cuBLASLt may have no algorithm that adds a bias before it rounds.
inline int64_t workspace_bytes(const Matmul& args) {
  const bool narrow_bias = !args.bias.absent() && size_of(args.out.dtype) == 2;
  return args.cuts || narrow_bias ? ProductScratch(args).bytes : kCublasWorkspaceBytes;
}

}  // namespace trivet::kernels
