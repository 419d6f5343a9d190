// Whether numbers are finite, that is neither NaN nor infinite.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"

namespace trivet {

// The first element of `data` (in host memory) that is not finite; -1 when all are, as integers always are.
int64_t first_not_finite(ConstTensorView data);
// An element of a floating-point tensor in host memory, for messages: every NaN is the positive one.
double value_at(ConstTensorView data, int64_t element);

}  // namespace trivet
