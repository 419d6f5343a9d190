// Sums whose bits do not depend on the layout: of squares (core/exact_sum.h), and on the fixed-point grid of layout mode.
#pragma once

#include <cstdint>
#include <span>

#include "core/exact_sum.h"
#include "core/number.h"
#include "kernels/kernel_call.h"

namespace trivet::kernels {

// Every shard boundary is a multiple of this many elements, so that a norm has the same bits however a parameter is sharded.
inline constexpr int64_t kSumBlock = 256;

// One term of sum_of_squares: the squares of scale * x, in float64, in blocks of `block` elements (a divisor of kSumBlock) from
// the start of x.
struct Squares {
  ConstTensorView x;
  Number scale = 1;
  int64_t block = 0;  // must be given
};

// sum += the blocks' sums of squares of all terms, combined exactly. A NaN or an infinity makes the sum not finite.
struct SumOfSquares {
  std::span<const Squares> terms;
  TensorView sum;  // int64 [ExactSum::kWords]

  void check() const;
  KernelCall describe() const;
};

// out /= sqrt(square_sum) + epsilon
struct DivideByNorm {
  TensorView out;
  ConstTensorView square_sum;  // int64 [ExactSum::kWords]
  double epsilon = 0;

  void check() const;
  KernelCall describe() const;
};

// sum[e] += round(x[e] * scale * 2^44) (core/fixed_point.h). Values that are not finite or not below `limit` in magnitude
// (after scaling) are not added; refused[0] += their number.
struct FixedPointAdd {
  ConstTensorView x;
  Number scale = 1;
  double limit = 0;
  TensorView sum;      // int64
  TensorView refused;  // int64 [1]

  void check() const;
  KernelCall describe() const;
};

// Stores with = instead of +=, so that the sum need not be zeroed before the first contribution.
struct FixedPointStore {
  ConstTensorView x;
  Number scale = 1;
  double limit = 0;
  TensorView sum;      // int64
  TensorView refused;  // int64 [1]

  void check() const;
  KernelCall describe() const;
};

// out[e] = sum[e] * 2^-44, rounded once
struct FixedPointRead {
  ConstTensorView sum;
  TensorView out;

  void check() const;
  KernelCall describe() const;
};

// FixedPointStore and FixedPointRead in one pass, without the sum in memory: for values to which nothing is added. `out` may
// be x.
struct FixedPointRound {
  ConstTensorView x;
  Number scale = 1;
  double limit = 0;
  TensorView out;
  TensorView refused;  // int64 [1]

  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels
