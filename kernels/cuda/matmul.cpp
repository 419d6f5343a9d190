// Matrix products: one call of cuBLASLt where its epilogues do all that is asked for, which is nearly always.
#include <fmt/format.h>

#include <cstdint>

#include "core/error.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/products/cublas.h"
#include "kernels/cuda/products/parts.h"
#include "kernels/cuda/products/pieces.h"

namespace trivet::kernels::cuda {
namespace {

constexpr int kBlocksPerMultiprocessor = 8;

Product product_of(const Matmul& args) {
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

// cuBLASLt adds biases of out's type, and none to float64.
bool epilogue_takes(const Matmul& args) {
  return !args.bias.absent() && args.bias.dtype == args.out.dtype && args.out.dtype != DType::Float64;
}

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

bool in_packs(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

// The tanh of cuBLASLt's GELU is an approximation of about 11 bits, enough for results of 16 bits. What goes into the GELU has
// to have a leading dimension that 8 divides.
bool epilogue_takes_gelu(const Matmul& args, const Product& product) {
  if (args.cuts || product.k == 0 || size_of(args.out.dtype) != 2 || product.n % 8 != 0) return false;
  return in_packs(args.out.data) && in_packs(args.activated.data) && in_packs(args.before_gelu.data);
}

// False: nothing is done.
bool multiply_with_gelu(const Matmul& args, Product product, const Launch& launch) {
  if (!epilogue_takes_gelu(args, product)) return false;
  if (args.activated.absent()) {
    product.gelu = GeluEpilogue::Backward;
    product.aux = const_cast<void*>(args.before_gelu.data);  // read only
  } else {
    product.gelu = GeluEpilogue::Forward;
    product.aux = args.out.data;
    product.out = args.activated.data;
    if (!args.bias.absent()) product.bias = args.bias.data;
  }
  return multiply(product, launch);
}

void multiply(const Matmul& args, Product product, const Launch& launch) {
  if (args.cuts) return multiply_in_pieces(args, launch);
  if (product.k == 0) {
    if (!args.accumulate) finish(args, nullptr, launch);
    return;
  }
  if (epilogue_takes(args)) {
    product.bias = args.bias.data;
    if (multiply(product, launch)) return;
    product.bias = nullptr;
    if (size_of(args.out.dtype) == 2) return multiply_in_pieces(args, launch);  // the sum must not be rounded before
  }
  if (!multiply(product, launch))
    throw DeviceError(ExitCode::Internal, fmt::format("cuda: cuBLASLt has no algorithm for {}", to_string(kind_of(product))));
  if (!args.bias.absent()) finish(args, args.out.data, launch);  // out is float32 or float64
}

}  // namespace

void matmul(const Matmul& args, const Launch& launch) {
  const Product product = product_of(args);
  if (product.m == 0 || product.n == 0) return;
  const bool forward = !args.activated.absent(), backward = !args.before_gelu.absent();
  if ((forward || backward) && multiply_with_gelu(args, product, launch)) return;
  multiply(args, product, launch);
  if (forward) gelu({.x = args.out, .y = args.activated}, launch);
  if (backward) gelu_backward({.dy = args.out, .x = args.before_gelu, .dx = args.out}, launch);
}

}  // namespace trivet::kernels::cuda
