#include "kernels/cuda/products/product_of.h"

#include <cstdint>

namespace trivet::kernels::cuda {
namespace {

Product plain_product(const Matmul& args) {
  return {.a = args.a.data,
          .b = args.b.data,
          .out = args.out.data,
          .dtype = args.a.dtype,
          .out_dtype = args.out.dtype,
          .transpose_a = args.transpose_a,
          .transpose_b = args.transpose_b,
          .accumulate = args.accumulate,
          .m = args.out.shape[0],
          .n = args.out.shape[1],
          .k = args.transpose_a ? args.a.shape[0] : args.a.shape[1],
          .a_stride = args.a.shape[1],
          .b_stride = args.b.shape[1],
          .out_stride = args.out.shape[1]};
}

// cuBLASLt adds only biases of out's type, and none to float64.
bool epilogue_takes_bias(const Matmul& args) {
  return !args.bias.absent() && args.bias.dtype == args.out.dtype && args.out.dtype != DType::Float64;
}

bool in_packs(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

// The tanh of cuBLASLt's GELU is an approximation of about 11 bits, enough for results of 16 bits. The leading dimension of the
// GELU's input must be a multiple of 8.
bool epilogue_takes_gelu(const Matmul& args, const Product& product) {
  if (args.activated.absent() && args.before_gelu.absent()) return false;
  if (args.cuts || product.k == 0 || size_of(args.out.dtype) != 2 || product.n % 8 != 0) return false;
  return in_packs(args.out.data) && in_packs(args.activated.data) && in_packs(args.before_gelu.data);
}

}  // namespace

Product first_product(const Matmul& args) {
  Product product = plain_product(args);
  if (!epilogue_takes_gelu(args, product)) return product_without_gelu(args);
  if (args.activated.absent()) {
    product.gelu = GeluEpilogue::Backward;
    product.aux = const_cast<void*>(args.before_gelu.data);  // read only
  } else {
    product.gelu = GeluEpilogue::Forward;
    product.aux = args.out.data;
    product.out = args.activated.data;
    if (!args.bias.absent()) product.bias = args.bias.data;
  }
  return product;
}

Product product_without_gelu(const Matmul& args) {
  Product product = plain_product(args);
  if (epilogue_takes_bias(args)) product.bias = args.bias.data;
  return product;
}

}  // namespace trivet::kernels::cuda
