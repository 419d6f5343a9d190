// Products whose bits do not depend on how many ranks share a dim (kernels/products.h, ProductCuts).
#pragma once

#include "kernels/cuda/math.h"

namespace trivet::kernels::cuda {

// Computes out piece by piece and K leaf by leaf, through partial sums in the workspace (kernels/product_scratch.h). Without
// cuts, computes everything through one partial sum, for products that cuBLASLt cannot finish itself.
void multiply_in_pieces(const Matmul& args, const Launch& launch);

}  // namespace trivet::kernels::cuda
