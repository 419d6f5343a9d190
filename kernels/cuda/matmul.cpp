// Matrix products. A product is one call of cuBLASLt if its epilogues can do all that is requested, which is nearly always the
// case.
#include <fmt/format.h>

#include <cstdint>

#include "core/error.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/products/around_products.h"
#include "kernels/cuda/products/cublas.h"
#include "kernels/cuda/products/multiply_in_pieces.h"
#include "kernels/cuda/products/product_of.h"

namespace trivet::kernels::cuda {
namespace {

constexpr int kBlocksPerMultiprocessor = 8;

bool multiply(const Product& product, const Launch& launch) {
  return Cublas::of_current_device().multiply(product, kind_of(product), launch.workspace.data, launch.stream);
}

// out = sum (or zeros) + bias
void finish(const Matmul& args, const void* sum, const Launch& launch) {
  finish_part({.sum = sum,
               .out = args.out.data,
               .out_dtype = args.out.dtype,
               .rows = args.out.shape[0],
               .cols = args.out.shape[1],
               .out_stride = args.out.shape[1],
               .bias = args.bias.absent() ? nullptr : args.bias.data,
               .bias_dtype = args.bias.dtype},
              kBlocksPerMultiprocessor * launch.multiprocessors, launch.stream);
}

void multiply_without_gelu(const Matmul& args, Product product, const Launch& launch) {
  if (args.cuts) return multiply_in_pieces(args, launch);
  if (product.k == 0) {
    if (!args.accumulate) finish(args, nullptr, launch);
    return;
  }
  if (product.bias) {
    if (multiply(product, launch)) return;
    product.bias = nullptr;
    if (size_of(args.out.dtype) == 2) return multiply_in_pieces(args, launch);  // the bias comes before rounding
  }
  if (!multiply(product, launch))
    throw DeviceError(ExitCode::Internal, fmt::format("cuda: cuBLASLt has no algorithm for {}", to_string(kind_of(product))));
  if (!args.bias.absent()) finish(args, args.out.data, launch);  // out is float32 or float64
}

}  // namespace

void compute(const Matmul& args, const Launch& launch) {
  const Product product = first_product(args);
  if (product.m == 0 || product.n == 0) return;
  if (product.gelu != GeluEpilogue::None && multiply(product, launch)) return;
  multiply_without_gelu(args, product_without_gelu(args), launch);
  if (!args.activated.absent()) compute(Gelu{.x = args.out, .y = args.activated}, launch);
  if (!args.before_gelu.absent()) compute(GeluBackward{.dy = args.out, .x = args.before_gelu, .dx = args.out}, launch);
}

}  // namespace trivet::kernels::cuda
