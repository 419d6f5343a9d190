// Translates a call of Kernels::matmul into the product that is requested from cuBLASLt, with all that one of its epilogues can
// do.
#pragma once

#include "kernels/cuda/products/cublas.h"
#include "kernels/kernels.h"

namespace trivet::kernels::cuda {

// Returns the product of a call without cuts. It includes the GELU (with the bias) if an epilogue supports it;
// otherwise the bias, if one supports that.
Product first_product(const Matmul& args);
// The product to request if the first one has no algorithm. A kernel of our own then computes the GELU.
Product product_without_gelu(const Matmul& args);

}  // namespace trivet::kernels::cuda
