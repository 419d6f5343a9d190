// One tile of a matrix product, on one thread: c[m, n] (+)= a[m, k] b[k, n], with oneDNN if it supports the types.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace trivet::kernels::cpu {

// op(x) in memory: rows of x are `stride` elements apart, and op transposes if `transposed` is set.
struct Operand {
  const void* data = nullptr;
  DType dtype = DType::Float32;
  int64_t stride = 0;
  bool transposed = false;

  int64_t row_stride() const { return transposed ? 1 : stride; }
  int64_t col_stride() const { return transposed ? stride : 1; }
  // The operand that starts at element (row, col) of op(x).
  Operand at(int64_t row, int64_t col) const {
    const int64_t offset = (row * row_stride() + col * col_stride()) * size_of(dtype);
    return {static_cast<const std::byte*>(data) + offset, dtype, stride, transposed};
  }
};

struct TileSize {
  int64_t m = 0, n = 0, k = 0;
};

// Where a tile is written: rows are `stride` elements apart; the bias, if any, has size.n elements and is added before
// rounding.
struct TileTarget {
  void* data = nullptr;
  DType dtype = DType::Float32;
  int64_t stride = 0;
  bool accumulate = false;
  const void* bias = nullptr;
  DType bias_dtype = DType::Float32;
};

// Sums are in float32 if a and b are both float32, bfloat16 or float16, and in float64 if both are float64. Rows of c are
// c_stride elements apart.
void tile_product(const TileSize& size, const Operand& a, const Operand& b, float* c, int64_t c_stride, bool accumulate);
void tile_product(const TileSize& size, const Operand& a, const Operand& b, double* c, int64_t c_stride, bool accumulate);

// A row of a tile has the same bits in all tiles with a multiple of this number of rows, and at most `most`.
struct TileRows {
  int64_t unit, most;
};
TileRows tile_rows();

// If oneDNN can, computes a tile with bias and rounding in one call and returns true. Otherwise does nothing and returns false.
bool complete_tile(const TileSize& size, const Operand& a, const Operand& b, const TileTarget& target);

}  // namespace trivet::kernels::cpu
