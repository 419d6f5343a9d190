#include "kernels/norms.h"

#include "kernels/costs.h"
#include "kernels/rules.h"

namespace trivet::kernels {
namespace {

// Checks the sum that a norm computes first.
void check_sum(const Rules& rules, const DropoutAdd& sum, ConstTensorView x) {
  if (sum.out.absent()) return;
  sum.check();
  rules.require(!sum.residual.absent(), "the sum needs a residual");
  rules.require(sum.out.data == x.data, "x must be the output of the sum");
  rules.types(x.dtype, {sum.out});
  rules.sizes(x.elements(), {sum.out});
  rules.require(x.elements() == 0 || x.shape.rows() % sum.x.shape[0] == 0, "a row must not span two samples");
}

void check_residual(const Rules& rules, ConstTensorView residual, ConstTensorView dx) {
  if (residual.absent()) return;
  rules.types(dx.dtype, {residual});
  rules.shapes(dx.shape, {residual});
}

// A norm reads its x, or computes it as a sum.
template <typename Norm>
double bytes_of_input(const Norm& norm) {
  if (norm.sum.out.absent()) return total_bytes({norm.x});
  return total_bytes({norm.sum.x, norm.sum.residual, norm.sum.out});
}

}  // namespace

void LayerNorm::check() const {
  const Rules rules("layer_norm", {{"x", x}, {"gain", gain}, {"bias", bias}, {"y", y}, {"mean", mean}, {"rstd", rstd}});
  rules.floating(x.dtype);
  rules.types(x.dtype, {gain, bias, y});
  rules.types(statistics_type(x.dtype), {mean, rstd});
  rules.shapes(x.shape, {y});
  rules.sizes(x.shape.cols(), {gain, bias});
  rules.sizes(x.shape.rows(), {mean, rstd});
  check_sum(rules, sum, x);
}

KernelCall LayerNorm::describe() const {
  return {.kernel = "layer_norm",
          .variant = sum.out.absent() ? "" : "sum",
          .dtype = x.dtype,
          .sizes = rows_of(x),
          .bound = Bound::Memory,
          .flops = 8 * elements(x) + 2 * elements(sum.x),
          .bytes = bytes_of_input(*this) + total_bytes({gain, bias, y, mean, rstd})};
}

void LayerNormBackwardInput::check() const {
  const Rules rules("layer_norm_backward_input",
                    {{"dy", dy}, {"x", x}, {"gain", gain}, {"mean", mean}, {"rstd", rstd}, {"dx", dx}, {"residual", residual}});
  rules.floating(x.dtype);
  rules.types(x.dtype, {dy, gain, dx});
  rules.types(statistics_type(x.dtype), {mean, rstd});
  rules.shapes(x.shape, {dy, dx});
  rules.sizes(x.shape.cols(), {gain});
  rules.sizes(x.shape.rows(), {mean, rstd});
  check_residual(rules, residual, dx);
}

KernelCall LayerNormBackwardInput::describe() const {
  return {.kernel = "layer_norm_backward_input",
          .dtype = x.dtype,
          .sizes = rows_of(x),
          .bound = Bound::Memory,
          .result = Result::InputGradient,
          .flops = 12 * elements(x),
          .bytes = total_bytes({dy, x, gain, mean, rstd, dx, residual})};
}

void LayerNormBackwardWeight::check() const {
  const Rules rules("layer_norm_backward_weight",
                    {{"dy", dy}, {"x", x}, {"mean", mean}, {"rstd", rstd}, {"dgain", dgain}, {"dbias", dbias}});
  rules.floating(x.dtype);
  rules.types(x.dtype, {dy});
  rules.types(statistics_type(x.dtype), {mean, rstd});
  rules.shapes(x.shape, {dy});
  rules.sizes(x.shape.rows(), {mean, rstd});
  for (const TensorView& gradient : {dgain, dbias}) {
    if (gradient.absent()) continue;
    rules.parameter_gradient(x.dtype, gradient);
    rules.sizes(x.shape.cols(), {gradient});
  }
}

KernelCall LayerNormBackwardWeight::describe() const {
  return {.kernel = "layer_norm_backward_weight",
          .dtype = x.dtype,
          .sizes = rows_of(x),
          .bound = Bound::Memory,
          .result = Result::WeightGradient,
          .flops = 5 * elements(x),
          .bytes = total_bytes({dy, x, mean, rstd}) + written(dgain, accumulate_gain) + written(dbias, accumulate_bias)};
}

void RmsNorm::check() const {
  const Rules rules("rms_norm", {{"x", x}, {"gain", gain}, {"y", y}, {"rstd", rstd}});
  rules.floating(x.dtype);
  rules.types(x.dtype, {gain, y});
  rules.types(statistics_type(x.dtype), {rstd});
  rules.shapes(x.shape, {y});
  rules.sizes(x.shape.cols(), {gain});
  rules.sizes(x.shape.rows(), {rstd});
  check_sum(rules, sum, x);
}

KernelCall RmsNorm::describe() const {
  return {.kernel = "rms_norm",
          .variant = sum.out.absent() ? "" : "sum",
          .dtype = x.dtype,
          .sizes = rows_of(x),
          .bound = Bound::Memory,
          .flops = 5 * elements(x) + 2 * elements(sum.x),
          .bytes = bytes_of_input(*this) + total_bytes({gain, y, rstd})};
}

void RmsNormBackwardInput::check() const {
  const Rules rules("rms_norm_backward_input",
                    {{"dy", dy}, {"x", x}, {"gain", gain}, {"rstd", rstd}, {"dx", dx}, {"residual", residual}});
  rules.floating(x.dtype);
  rules.types(x.dtype, {dy, gain, dx});
  rules.types(statistics_type(x.dtype), {rstd});
  rules.shapes(x.shape, {dy, dx});
  rules.sizes(x.shape.cols(), {gain});
  rules.sizes(x.shape.rows(), {rstd});
  check_residual(rules, residual, dx);
}

KernelCall RmsNormBackwardInput::describe() const {
  return {.kernel = "rms_norm_backward_input",
          .dtype = x.dtype,
          .sizes = rows_of(x),
          .bound = Bound::Memory,
          .result = Result::InputGradient,
          .flops = 9 * elements(x),
          .bytes = total_bytes({dy, x, gain, rstd, dx, residual})};
}

void RmsNormBackwardWeight::check() const {
  const Rules rules("rms_norm_backward_weight", {{"dy", dy}, {"x", x}, {"rstd", rstd}, {"dgain", dgain}});
  rules.floating(x.dtype);
  rules.types(x.dtype, {dy});
  rules.types(statistics_type(x.dtype), {rstd});
  rules.parameter_gradient(x.dtype, dgain);
  rules.shapes(x.shape, {dy});
  rules.sizes(x.shape.cols(), {dgain});
  rules.sizes(x.shape.rows(), {rstd});
}

KernelCall RmsNormBackwardWeight::describe() const {
  return {.kernel = "rms_norm_backward_weight",
          .dtype = x.dtype,
          .sizes = rows_of(x),
          .bound = Bound::Memory,
          .result = Result::WeightGradient,
          .flops = 3 * elements(x),
          .bytes = total_bytes({dy, x, rstd}) + written(dgain, accumulate)};
}

}  // namespace trivet::kernels
