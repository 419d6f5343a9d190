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

template <typename Args>  // HeadNorm and its gradients
void check_heads(const Rules& rules, const Args& a) {
  rules.floating(a.qkv.dtype);
  rules.require(a.qkv.shape.dims() == 3, "qkv must be [B, S, (N + 2G) D]");
  rules.require(a.heads > 0 && a.key_value_heads > 0, "there must be heads");
  rules.require(a.qkv.shape[2] % (a.heads + 2 * a.key_value_heads) == 0, "the width of qkv must be a multiple of N + 2G");
  rules.types(statistics_type(a.qkv.dtype), {a.rstd});
  rules.sizes(a.qkv.shape.rows() * (a.heads + a.key_value_heads), {a.rstd});
}

// The share of qkv that is normalized.
template <typename Args>
double normalized_share(const Args& a) {
  return static_cast<double>(a.heads + a.key_value_heads) / static_cast<double>(a.heads + 2 * a.key_value_heads);
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

void HeadNorm::check() const {
  const Rules rules("head_norm",
                    {{"qkv", qkv}, {"query_gain", query_gain}, {"key_gain", key_gain}, {"out", out}, {"rstd", rstd}});
  check_heads(rules, *this);
  rules.types(qkv.dtype, {query_gain, key_gain, out});
  rules.shapes(qkv.shape, {out});
  rules.sizes(head_size(), {query_gain, key_gain});
}

KernelCall HeadNorm::describe() const {
  return {.kernel = "head_norm",
          .dtype = qkv.dtype,
          .sizes = rows_of(qkv),
          .bound = Bound::Memory,
          .flops = 5 * normalized_share(*this) * elements(qkv),
          .bytes = total_bytes({qkv, query_gain, key_gain, out, rstd})};
}

void HeadNormBackwardInput::check() const {
  const Rules rules(
      "head_norm_backward_input",
      {{"dout", dout}, {"qkv", qkv}, {"query_gain", query_gain}, {"key_gain", key_gain}, {"rstd", rstd}, {"dqkv", dqkv}});
  check_heads(rules, *this);
  rules.types(qkv.dtype, {dout, query_gain, key_gain, dqkv});
  rules.shapes(qkv.shape, {dout, dqkv});
  rules.sizes(head_size(), {query_gain, key_gain});
}

KernelCall HeadNormBackwardInput::describe() const {
  return {.kernel = "head_norm_backward_input",
          .dtype = qkv.dtype,
          .sizes = rows_of(qkv),
          .bound = Bound::Memory,
          .result = Result::InputGradient,
          .flops = 9 * normalized_share(*this) * elements(qkv),
          .bytes = total_bytes({dout, qkv, query_gain, key_gain, rstd, dqkv})};
}

void HeadNormBackwardWeight::check() const {
  const Rules rules("head_norm_backward_weight", {{"dout", dout}, {"qkv", qkv}, {"rstd", rstd}, {"dgains", dgains}});
  check_heads(rules, *this);
  rules.types(qkv.dtype, {dout});
  rules.types(statistics_type(qkv.dtype), {dgains});
  rules.shapes(qkv.shape, {dout});
  rules.sizes((heads + key_value_heads) * head_size(), {dgains});
}

KernelCall HeadNormBackwardWeight::describe() const {
  const double share = normalized_share(*this);
  return {.kernel = "head_norm_backward_weight",
          .dtype = qkv.dtype,
          .sizes = rows_of(qkv),
          .bound = Bound::Memory,
          .result = Result::WeightGradient,
          .flops = 3 * share * elements(qkv),
          .bytes = share * total_bytes({dout, qkv}) + total_bytes({rstd, dgains})};
}

}  // namespace trivet::kernels
