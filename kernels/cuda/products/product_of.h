// A call of Kernels::matmul as the product that cuBLASLt is asked for: with all that one of its epilogues can do.
#pragma once

#include "kernels/cuda/products/cublas.h"
#include "kernels/kernels.h"

namespace trivet::kernels::cuda {

// Without cuts. The GELU is in it where an epilogue takes it, else the bias is, where one takes that.
Product first_product(const Matmul& args);
// What is asked for where that has no algorithm: the GELU is made by a kernel of ours.
Product product_without_gelu(const Matmul& args);

}  // namespace trivet::kernels::cuda
