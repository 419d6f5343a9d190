// Finds numbers that are not finite, that is, NaN or infinite.
#pragma once

#include <cstdint>
#include <string>

#include "core/tensor_view.h"

namespace trivet {

// Index of the first element of `data` (in host memory) that is not finite; -1 if all are finite, as integers always are.
int64_t first_not_finite(ConstTensorView data);
// The same, but a float32 that rounds to infinity in `used_as` is not finite either.
int64_t first_not_finite(ConstTensorView data, DType used_as);
// Describes such an element: "nan", or "1e+30, infinite in float16".
std::string not_finite_value(ConstTensorView data, int64_t element, DType used_as);
// An element of a floating-point tensor in host memory, for messages: NaN is always returned with a positive sign.
double value_at(ConstTensorView data, int64_t element);

}  // namespace trivet
