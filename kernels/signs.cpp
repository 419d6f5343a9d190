#include "kernels/signs.h"

#include "kernels/costs.h"
#include "kernels/rules.h"

namespace trivet::kernels {
namespace {

void check_signs(const char* kernel, ConstTensorView values, ConstTensorView variance, ConstTensorView packed) {
  const Rules rules(kernel, {{"values", values}, {"variance", variance}, {"packed", packed}});
  rules.types(DType::Float32, {values, variance});
  rules.sizes(values.elements(), {variance});
  rules.require(values.elements() % kQuantizedBlock == 0, "values must have whole blocks");
  rules.types(DType::UInt8, {packed});
  rules.sizes(sign_bytes(values.elements()), {packed});
}

}  // namespace

void PackSigns::check() const { check_signs("pack_signs", values, variance, packed); }

KernelCall PackSigns::describe() const {
  return {.kernel = "pack_signs",
          .dtype = values.dtype,
          .sizes = elements_of(values),
          .bound = Bound::Memory,
          .flops = 3 * elements(values),
          .bytes = total_bytes({variance, packed}) + 2 * total_bytes({values})};
}

void UnpackSigns::check() const { check_signs("unpack_signs", out, variance, packed); }

KernelCall UnpackSigns::describe() const {
  return {.kernel = "unpack_signs",
          .dtype = out.dtype,
          .sizes = elements_of(out),
          .bound = Bound::Memory,
          .flops = (accumulate ? 2 : 1) * elements(out),
          .bytes = total_bytes({packed, variance}) + written(out, accumulate)};
}

}  // namespace trivet::kernels
