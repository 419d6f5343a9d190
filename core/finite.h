// Whether numbers are finite, that is neither NaN nor infinite.
#pragma once

#include <cstdint>
#include <string>

#include "core/tensor_view.h"

namespace trivet {

// The first element of `data` (in host memory) that is not finite; -1 when all are, as integers always are.
int64_t first_not_finite(ConstTensorView data);
// The same, but a float32 that rounds to infinity in `used_as` is not finite either.
int64_t first_not_finite(ConstTensorView data, DType used_as);
// What such an element is: "nan", or "1e+30, infinite in float16".
std::string not_finite_value(ConstTensorView data, int64_t element, DType used_as);
// An element of a floating-point tensor in host memory, for messages: every NaN is the positive one.
double value_at(ConstTensorView data, int64_t element);

}  // namespace trivet
