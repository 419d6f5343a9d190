// Matrix products, and what goes with them: biases and their gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernel_call.h"

namespace trivet::kernels {

// The division of a product so that its bits do not depend on how many ranks share one of its dims. Every piece of out
// is computed as a separate product. A sum over K adds up the ranges of each leaf, in their order, and then the leaves
// in a balanced tree, ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), all in float32 (float64), before bias and rounding. A
// leaf without elements adds nothing.
struct ProductCuts {
  struct Range {
    int64_t begin = 0, end = 0;
  };
  std::vector<int64_t> row_ends, col_ends;  // ends of the pieces of out; empty: one piece
  std::vector<std::vector<Range>> leaves;   // ranges of K; empty: one leaf that covers all of K
};

// out[M, N] (+)= op(a)[M, K] op(b)[K, N] (+ bias[N]). op transposes if transpose_a or transpose_b is set: a is then stored as
// [K, M], b as [N, K]. a and b have the same dtype; out has that dtype or float32. Sums over K are in float32 (float64).
struct Matmul {
  ConstTensorView a, b;
  TensorView out;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  ConstTensorView bias;               // optional [N]; not together with accumulate
  const ProductCuts* cuts = nullptr;  // optional
  // Optional, at most one of the two; [M, N], of the same type as a, b and out; not together with accumulate.
  TensorView activated;         // receives gelu(out) (Gelu), from out before or after rounding; with cuts: after
  ConstTensorView before_gelu;  // out = product * gelu'(before_gelu) (GeluBackward); the product may be rounded first; no bias

  void check() const;
  KernelCall describe() const;
};

// out[T, H] = x[T, H] (+ bias[H]), rounded once; x has the type of out or float32, and may be out. bias is optional and has the
// type of out.
struct AddBias {
  ConstTensorView x, bias;
  TensorView out;

  void check() const;
  KernelCall describe() const;
};

// dbias[H] (+)= sum over t of dy[T, H]
struct BiasGradient {
  ConstTensorView dy;
  TensorView dbias;
  bool accumulate = true;

  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels
