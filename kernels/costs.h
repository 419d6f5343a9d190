// Sizes and bytes of arguments, for their describe().
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "core/tensor_view.h"

namespace trivet::kernels {

using Sizes = std::array<int64_t, 5>;  // KernelCall::sizes

inline Sizes rows_of(ConstTensorView x) { return {x.shape.rows(), x.shape.cols()}; }
inline Sizes elements_of(ConstTensorView x) { return {x.elements()}; }
inline double elements(ConstTensorView view) { return static_cast<double>(view.elements()); }

inline double total_bytes(std::initializer_list<ConstTensorView> views) {
  double sum = 0;
  for (const ConstTensorView& view : views) sum += static_cast<double>(view.bytes());
  return sum;
}
// Accumulating also reads the output.
inline double written(ConstTensorView view, bool accumulate) {
  return static_cast<double>(view.bytes()) * (accumulate ? 2.0 : 1.0);
}

}  // namespace trivet::kernels
