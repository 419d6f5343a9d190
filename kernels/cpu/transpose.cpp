// Transposes the matrices of a batch in square blocks, so that reads and writes both stay in few cache lines.
#include <algorithm>

#include "kernels/cpu/fused/ranges.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"
#include "kernels/memory.h"

namespace trivet::kernels::cpu {
namespace {

constexpr int64_t kBlock = 16;

// to[cols, rows]: its rows from `col` on, as many as a block has.
template <typename T>
void transpose_strip(const T* from, int64_t rows, int64_t cols, int64_t col, T* to) {
  const int64_t end = std::min(cols, col + kBlock);
  for (int64_t first = 0; first < rows; first += kBlock)
    for (int64_t c = col; c < end; ++c)
      for (int64_t r = first; r < std::min(rows, first + kBlock); ++r) to[c * rows + r] = from[r * cols + c];
}

}  // namespace

void compute(const Transpose& args, int threads) {
  const int64_t matrices = args.from.shape[0], rows = args.from.shape[1], cols = args.from.shape[2];
  const int64_t strips = (cols + kBlock - 1) / kBlock;
  dispatch_float(args.from.dtype, [&]<typename T>() {
    for_each_range(matrices * strips, threads, 1, rows * kBlock, [&](int64_t begin, int64_t end) {
      for (int64_t strip = begin; strip < end; ++strip) {
        const int64_t first = strip / strips * rows * cols;
        transpose_strip(args.from.as<T>() + first, rows, cols, strip % strips * kBlock, args.out.as<T>() + first);
      }
    });
  });
}

}  // namespace trivet::kernels::cpu
