// One tile of a matrix product, by one thread: c[m, n] (+)= a[m, k] b[k, n], through oneDNN where it knows the types.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace trivet::kernels::cpu {

// op(x) as it lies in memory: rows of x are `stride` elements apart, and op transposes when it says so.
struct Operand {
  const void* data = nullptr;
  DType dtype = DType::Float32;
  int64_t stride = 0;
  bool transposed = false;

  int64_t row_stride() const { return transposed ? 1 : stride; }
  int64_t col_stride() const { return transposed ? stride : 1; }
  // The same from element (row, col) of op(x) on.
  Operand at(int64_t row, int64_t col) const {
    const int64_t offset = (row * row_stride() + col * col_stride()) * size_of(dtype);
    return {static_cast<const std::byte*>(data) + offset, dtype, stride, transposed};
  }
};

struct TileSize {
  int64_t m = 0, n = 0, k = 0;
};

// Where a tile goes: rows are `stride` elements apart; the bias, if any, has size.n elements and is added before rounding.
struct TileTarget {
  void* data = nullptr;
  DType dtype = DType::Float32;
  int64_t stride = 0;
  bool accumulate = false;
  const void* bias = nullptr;
  DType bias_dtype = DType::Float32;
};

// Sums in float32: a and b are both float32, bfloat16 or float16. Sums in float64: both float64. c has rows c_stride apart.
void tile_product(const TileSize& size, const Operand& a, const Operand& b, float* c, int64_t c_stride, bool accumulate);
void tile_product(const TileSize& size, const Operand& a, const Operand& b, double* c, int64_t c_stride, bool accumulate);

// Makes a tile with bias and rounding in one go and returns true, where oneDNN can; does nothing and returns false elsewhere.
bool complete_tile(const TileSize& size, const Operand& a, const Operand& b, const TileTarget& target);

}  // namespace trivet::kernels::cpu
