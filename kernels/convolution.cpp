#include "kernels/convolution.h"

#include "kernels/costs.h"
#include "kernels/rules.h"

namespace trivet::kernels {
namespace {

// The sizes of a convolution from an image of shape x to one of shape y.
void check_convolution(const Rules& rules, const Window& window, const Shape& x, const Shape& y) {
  rules.require(x.dims() == 4 && y.dims() == 4, "images must be [batch, channels, rows, columns]");
  rules.require(window.rows > 0 && window.cols > 0 && window.stride > 0 && window.padding >= 0, "impossible window");
  rules.require(x[0] == y[0], "numbers of images differ");
  rules.require(y[2] == window.output_rows(x[2]) && y[3] == window.output_cols(x[3]),
                "the output does not have one pixel for each window");
}

void check_weight(const Rules& rules, const Window& window, const Shape& weight, const Shape& x, const Shape& y) {
  rules.require(weight == Shape({y[1], x[1], window.rows, window.cols}),
                "a weight must be [output channels, channels, rows, columns] of the window");
}

void check_pooling(const Rules& rules, const Window& window, const Shape& x, const Shape& y) {
  check_convolution(rules, window, x, y);
  rules.require(x[1] == y[1], "numbers of channels differ");
  rules.require(2 * window.padding <= window.rows && 2 * window.padding <= window.cols,
                "the padding must be at most half of the window");
}

// Sizes as a product: rows are output channels, columns are all output pixels, and the sum is over the window's pixels.
Sizes product_sizes(const Shape& y, int64_t channels, const Window& window) {
  return {y[1], y[0] * y[2] * y[3], channels * window.pixels()};
}

double product_flops(const Sizes& sizes) {
  return 2.0 * static_cast<double>(sizes[0]) * static_cast<double>(sizes[1]) * static_cast<double>(sizes[2]);
}

}  // namespace

void Convolution::check() const {
  const Rules rules("convolution", {{"x", x}, {"weight", weight}, {"bias", bias}, {"y", y}});
  rules.floating(x.dtype);
  rules.types(x.dtype, {weight, y});
  check_convolution(rules, window, x.shape, y.shape);
  check_weight(rules, window, weight.shape, x.shape, y.shape);
  if (bias.absent()) return;
  rules.types(x.dtype, {bias});
  rules.sizes(y.shape[1], {bias});
}

KernelCall Convolution::describe() const {
  const Sizes sizes = product_sizes(y.shape, x.shape[1], window);
  return {.kernel = "convolution",
          .dtype = x.dtype,
          .sizes = sizes,
          .bound = Bound::Products,
          .flops = product_flops(sizes),
          .bytes = total_bytes({x, weight, bias, y})};
}

void ConvolutionBackwardInput::check() const {
  const Rules rules("convolution_backward_input", {{"dy", dy}, {"weight", weight}, {"dx", dx}});
  rules.floating(dy.dtype);
  rules.types(dy.dtype, {weight, dx});
  check_convolution(rules, window, dx.shape, dy.shape);
  check_weight(rules, window, weight.shape, dx.shape, dy.shape);
}

KernelCall ConvolutionBackwardInput::describe() const {
  const Sizes sizes = product_sizes(dy.shape, dx.shape[1], window);
  return {.kernel = "convolution_backward_input",
          .dtype = dy.dtype,
          .sizes = sizes,
          .bound = Bound::Products,
          .result = Result::InputGradient,
          .flops = product_flops(sizes),
          .bytes = total_bytes({dy, weight, dx})};
}

void ConvolutionBackwardWeight::check() const {
  const Rules rules("convolution_backward_weight", {{"dy", dy}, {"x", x}, {"dweight", dweight}, {"dbias", dbias}});
  rules.floating(dy.dtype);
  rules.types(dy.dtype, {x});
  check_convolution(rules, window, x.shape, dy.shape);
  if (!dweight.absent()) {
    rules.parameter_gradient(dy.dtype, dweight);
    check_weight(rules, window, dweight.shape, x.shape, dy.shape);
  }
  if (dbias.absent()) return;
  rules.parameter_gradient(dy.dtype, dbias);
  rules.sizes(dy.shape[1], {dbias});
}

KernelCall ConvolutionBackwardWeight::describe() const {
  const Sizes sizes = product_sizes(dy.shape, x.shape[1], window);
  return {.kernel = "convolution_backward_weight",
          .dtype = dy.dtype,
          .sizes = sizes,
          .bound = Bound::Products,
          .result = Result::WeightGradient,
          .flops = (dweight.absent() ? 0 : product_flops(sizes)) + (dbias.absent() ? 0 : elements(dy)),
          .bytes = total_bytes({dy, x}) + written(dweight, accumulate_weight) + written(dbias, accumulate_bias)};
}

void Pool::check() const {
  const Rules rules("pool", {{"x", x}, {"y", y}});
  rules.floating(x.dtype);
  rules.types(x.dtype, {y});
  check_pooling(rules, window, x.shape, y.shape);
}

KernelCall Pool::describe() const {
  return {.kernel = "pool",
          .variant = kind == Pooling::Max ? "max" : "average",
          .dtype = x.dtype,
          .sizes = elements_of(x),
          .bound = Bound::Memory,
          .flops = elements(y) * static_cast<double>(window.pixels()),
          .bytes = total_bytes({x, y})};
}

void PoolBackward::check() const {
  const Rules rules("pool_backward", {{"dy", dy}, {"x", x}, {"dx", dx}});
  rules.floating(dy.dtype);
  rules.types(dy.dtype, {dx});
  check_pooling(rules, window, dx.shape, dy.shape);
  if (kind == Pooling::Average) return;
  rules.types(dy.dtype, {x});
  rules.shapes(dx.shape, {x});
}

KernelCall PoolBackward::describe() const {
  return {.kernel = "pool_backward",
          .variant = kind == Pooling::Max ? "max" : "average",
          .dtype = dy.dtype,
          .sizes = elements_of(dx),
          .bound = Bound::Memory,
          .result = Result::InputGradient,
          .flops = elements(dy) * static_cast<double>(window.pixels()),
          .bytes = total_bytes({dy, dx}) + (kind == Pooling::Max ? total_bytes({x}) : 0)};
}

}  // namespace trivet::kernels
