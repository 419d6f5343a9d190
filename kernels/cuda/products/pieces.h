// Products whose bits do not depend on how many ranks share a dim (kernels/kernels.h, ProductCuts).
#pragma once

#include "kernels/cuda/math.h"

namespace trivet::kernels::cuda {

// Piece by piece of out and leaf by leaf of K, through partial sums in the workspace (kernels/product_scratch.h). Without cuts:
// all of it through one partial sum, for what cuBLASLt cannot finish itself.
void multiply_in_pieces(const Matmul& args, const Launch& launch);

}  // namespace trivet::kernels::cuda
