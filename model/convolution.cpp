#include "model/convolution.h"

#include <cmath>

#include "kernels/kernels.h"

namespace trivet::model {

Convolution::Convolution(const Options& options)
    : options_(options),
      window_{.rows = options.kernel, .cols = options.kernel, .stride = options.stride, .padding = options.padding} {
  const int64_t inputs = options.in_channels * window_.pixels();
  const Init init{Init::Kind::Uniform, 1 / std::sqrt(static_cast<double>(inputs))};
  parameters_.push_back(
      {.name = "weight", .shape = {options.out_channels, options.in_channels, options.kernel, options.kernel}, .init = init});
  if (options.bias) parameters_.push_back({.name = "bias", .shape = {options.out_channels}, .init = init, .decay = false});
}

Shape Convolution::output_shape(const Shape& input) const {
  return {input[0], options_.out_channels, window_.output_rows(input[2]), window_.output_cols(input[3])};
}

void Convolution::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  saved.reference(kX, x);
  context.kernels.convolution(
      {.x = x, .weight = weights[0], .bias = options_.bias ? weights[1] : ConstTensorView{}, .y = y, .window = window_});
}

void Convolution::backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const {
  saved.reference(kDy, dy);
  if (dx.absent()) return;
  context.kernels.convolution_backward_input({.dy = dy, .weight = weights[0], .dx = dx, .window = window_});
}

void Convolution::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  const Gradient weight = gradients[0], bias = options_.bias ? gradients[1] : Gradient{};
  if (weight.view.absent() && bias.view.absent()) return;
  context.kernels.convolution_backward_weight({.dy = saved[kDy],
                                               .x = saved[kX],
                                               .dweight = weight.view,
                                               .dbias = bias.view,
                                               .window = window_,
                                               .accumulate_weight = weight.accumulate,
                                               .accumulate_bias = bias.accumulate});
}

}  // namespace trivet::model
