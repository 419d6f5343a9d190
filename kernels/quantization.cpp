#include "kernels/quantization.h"

#include "kernels/costs.h"
#include "kernels/rules.h"

namespace trivet::kernels {
namespace {

void check_quantized(const char* kernel, ConstTensorView x, ConstTensorView values, ConstTensorView scales, int bits,
                     int64_t block) {
  const Rules rules(kernel, {{"x", x}, {"values", values}, {"scales", scales}});
  rules.floating(x.dtype);
  rules.types(DType::UInt8, {values});
  rules.types(DType::Float32, {scales});
  rules.require(bits == 8 || bits == 4, "values must have 8 or 4 bits");
  rules.require(block >= 64 && block <= 2048 && block % 64 == 0,
                "the number of elements of a block must be a multiple of 64, from 64 to 2048");
  rules.sizes(bits == 8 ? x.elements() : (x.elements() + 1) / 2, {values});
  rules.sizes((x.elements() + block - 1) / block, {scales});
}

}  // namespace

void Quantize::check() const { check_quantized("quantize", x, values, scales, bits, block); }

KernelCall Quantize::describe() const {
  return {.kernel = "quantize",
          .variant = bits == 4 ? "4" : "8",
          .dtype = x.dtype,
          .sizes = elements_of(x),
          .bound = Bound::Memory,
          .flops = 3 * elements(x),
          .bytes = total_bytes({x, values, scales})};
}

void Dequantize::check() const { check_quantized("dequantize", out, values, scales, bits, block); }

KernelCall Dequantize::describe() const {
  return {.kernel = "dequantize",
          .variant = bits == 4 ? "4" : "8",
          .dtype = out.dtype,
          .sizes = elements_of(out),
          .bound = Bound::Memory,
          .flops = elements(out),
          .bytes = total_bytes({values, scales}) + written(out, accumulate)};
}

}  // namespace trivet::kernels
