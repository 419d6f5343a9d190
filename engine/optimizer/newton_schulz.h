// Approximates the orthogonal factor of a matrix by five steps of a quintic Newton-Schulz iteration (Muon, Jordan et al. 2024).
#pragma once

#include "core/arena.h"
#include "kernels/kernels.h"

namespace trivet {

// Temporaries for one matrix. Every rank allocates them, even those that only receive the result: one plan fits all ranks.
struct NewtonSchulzScratch {
  NewtonSchulzScratch(Arena& arena, const Shape& shape);
  ScopedTensor gram, polynomial, next, square_sum;
};

// matrix[R, C] float32, in place. Singular values end near 1.
void newton_schulz(kernels::Kernels& kernels, const NewtonSchulzScratch& scratch, TensorView matrix);

}  // namespace trivet
