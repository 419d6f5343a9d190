#include "model/pooling.h"

#include "kernels/kernels.h"

namespace trivet::model {

kernels::Window Pool::window_of(const Shape& image) const {
  if (options_.global) return {.rows = image[2], .cols = image[3]};
  return {.rows = options_.size, .cols = options_.size, .stride = options_.stride, .padding = options_.padding};
}

Shape Pool::output_shape(const Shape& input) const {
  const kernels::Window window = window_of(input);
  return {input[0], input[1], window.output_rows(input[2]), window.output_cols(input[3])};
}

void Pool::forward(Context& context, Weights, ConstTensorView x, TensorView y, Saved& saved) const {
  saved.reference(kX, x);
  context.kernels.pool({.x = x, .y = y, .window = window_of(x.shape), .kind = options_.kind});
}

void Pool::backward_input(Context& context, Weights, ConstTensorView dy, TensorView dx, Saved& saved) const {
  if (dx.absent()) return;
  context.kernels.pool_backward({.dy = dy, .x = saved[kX], .dx = dx, .window = window_of(dx.shape), .kind = options_.kind});
}

}  // namespace trivet::model
