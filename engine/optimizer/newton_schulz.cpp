#include "engine/optimizer/newton_schulz.h"

#include <algorithm>

namespace trivet {

NewtonSchulzScratch::NewtonSchulzScratch(Arena& arena, const Shape& shape)
    : gram(arena, DType::Float32, {std::min(shape[0], shape[1]), std::min(shape[0], shape[1])}),
      polynomial(arena, DType::Float32, {std::min(shape[0], shape[1]), std::min(shape[0], shape[1])}),
      next(arena, DType::Float32, shape),
      square_sum(arena, DType::Int64, {ExactSum::kWords}) {}

void newton_schulz(kernels::Kernels& kernels, const NewtonSchulzScratch& scratch, TensorView x) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;  // coefficients of the quintic
  constexpr int kSteps = 5;
  const bool tall = x.shape[0] > x.shape[1];  // X^T X is then the smaller Gram matrix
  const TensorView gram = scratch.gram, polynomial = scratch.polynomial, next = scratch.next;

  kernels.zero(scratch.square_sum);
  kernels.sum_of_squares(x, 1.0, kernels::kSumBlock, scratch.square_sum);
  kernels.divide_by_norm(x, scratch.square_sum, 1e-7);
  for (int step = 0; step < kSteps; ++step) {
    // A = X X^T (or X^T X);  B = b A + c A A;  X = a X + B X (or X B)
    kernels.matmul({.a = x, .b = x, .out = gram, .transpose_a = tall, .transpose_b = !tall});
    kernels.matmul({.a = gram, .b = gram, .out = polynomial});
    kernels.scale(polynomial, c);
    kernels.scale(gram, b);
    kernels.add(gram, polynomial);
    kernels.matmul({.a = tall ? x : polynomial, .b = tall ? polynomial : x, .out = next});
    kernels.scale(x, a);
    kernels.add(next, x);
  }
}

}  // namespace trivet
