// Copies of tensors that change the type, the scale, or both.
#pragma once

#include "core/tensor_view.h"
#include "hvd/types.h"

namespace trivet::hvd {

// x * factor / divisor, computed in float64 and then rounded to the target's type.
struct Scale {
  double factor = 1, divisor = 1;
  bool none() const { return factor == 1 && divisor == 1; }
};

// to[i] = from[i] * scale. `to` may be `from`, otherwise they must not overlap. Types that are no floating-point numbers can
// only be copied: to their own type, without a scale.
void convert(ConstTensorView from, TensorView to, Scale scale = {});

// Fills with the value that does not change the result of an operation: 0 for sums, 1 for products, infinity or the largest
// integer for minima. This is what a rank contributes that has joined.
void fill_neutral(TensorView to, ReduceOp op);

}  // namespace trivet::hvd
