#include "kernels/quantization.h"

#include "kernels/costs.h"
#include "kernels/rules.h"

namespace trivet::kernels {
namespace {

void check_quantized(const char* kernel, ConstTensorView values, ConstTensorView packed, int bits) {
  const Rules rules(kernel, {{"values", values}, {"packed", packed}});
  rules.floating(values.dtype);
  rules.require(values.dtype != DType::Float64, "values must have at most 32 bits");
  rules.require(bits == 8 || bits == 4, "a code has 8 or 4 bits");
  rules.require(values.elements() % kQuantizedBlock == 0, "values must have whole blocks");
  rules.types(DType::UInt8, {packed});
  rules.sizes(quantized_bytes(values.elements(), bits), {packed});
}

}  // namespace

void Quantize::check() const { check_quantized("quantize", x, packed, bits); }

KernelCall Quantize::describe() const {
  return {.kernel = "quantize",
          .dtype = x.dtype,
          .sizes = elements_of(x),
          .bound = Bound::Memory,
          .flops = 3 * elements(x),
          .bytes = total_bytes({x, packed})};
}

void Dequantize::check() const { check_quantized("dequantize", out, packed, bits); }

KernelCall Dequantize::describe() const {
  return {.kernel = "dequantize",
          .dtype = out.dtype,
          .sizes = elements_of(out),
          .bound = Bound::Memory,
          .flops = (accumulate ? 2 : 1) * elements(out),
          .bytes = total_bytes({packed}) + written(out, accumulate)};
}

}  // namespace trivet::kernels
