// Gradients of parameters that are sums over rows: biases, and the gain and bias of norms.
//
// Columns are cut into stripes, which are divided among the threads. Within a stripe, each chunk of kRowChunk rows is summed in
// row order, and then the chunks are summed in order. Neither cut depends on the number of threads, and two levels keep the
// rounding error of long sums small.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/cpu/fused/ranges.h"

namespace trivet::kernels::cpu {

inline constexpr int64_t kRowChunk = 64;
inline constexpr int64_t kStripe = 128;

// add_chunk(row, rows, col, cols, Sum* sums) adds `rows` rows to sums[0, cols); add_partial(const Sum*, Sum*, cols) adds these
// sums to the total; finish(col, cols, const Sum* total) stores it.
template <typename Sum, typename AddChunk, typename AddPartial, typename Finish>
void sum_columns(int64_t rows, int64_t cols, int threads, const AddChunk& add_chunk, const AddPartial& add_partial,
                 const Finish& finish) {
  for_each_range(cols, threads, kStripe, std::max<int64_t>(rows, 1), [&](int64_t begin, int64_t end) {
    for (int64_t col = begin; col < end; col += kStripe) {
      const int64_t width = std::min(kStripe, end - col);
      alignas(64) std::array<Sum, kStripe> total{}, partial;
      for (int64_t row = 0; row < rows; row += kRowChunk) {
        partial.fill(Sum{0});
        add_chunk(row, std::min(kRowChunk, rows - row), col, width, partial.data());
        add_partial(partial.data(), total.data(), width);
      }
      finish(col, width, total.data());
    }
  });
}

}  // namespace trivet::kernels::cpu
