#include "model/norm.h"

#include "kernels/kernels.h"
#include "model/sub_layers.h"

namespace trivet::model {
namespace {

std::vector<ParameterSpec> gain_and_bias(int64_t hidden, bool bias) {
  std::vector<ParameterSpec> parameters;
  parameters.push_back({.name = "gain", .shape = {hidden}, .init = {Init::Kind::Ones, 0}, .decay = false});
  if (bias) parameters.push_back({.name = "bias", .shape = {hidden}, .init = {Init::Kind::Zeros, 0}, .decay = false});
  return parameters;
}

// The requested gradient, or scratch for one that was not requested: the kernel computes both in one pass over the rows.
struct WantedOrScratch {
  WantedOrScratch(Context& context, Gradient wanted, ConstTensorView like, int64_t hidden) : gradient(wanted) {
    if (!wanted.view.absent()) return;
    scratch = ScopedTensor(context.arena, like.dtype, {hidden});
    gradient = {scratch, false};
  }
  ScopedTensor scratch;
  Gradient gradient;
};

}  // namespace

LayerNorm::LayerNorm(int64_t hidden, double epsilon, bool bias)
    : Norm(gain_and_bias(hidden, bias)), epsilon_(static_cast<float>(epsilon)), bias_(bias) {}

void LayerNorm::run(Context& context, Weights weights, ConstTensorView x, const kernels::DropoutAdd& sum, TensorView y,
                    Saved& saved) const {
  const Shape rows{x.shape.rows()};
  saved.reference(kX, x);
  const TensorView mean = saved.keep(context.arena, kMean, statistics_dtype(x.dtype), rows);
  const TensorView rstd = saved.keep(context.arena, kRstd, statistics_dtype(x.dtype), rows);
  ScopedTensor no_bias;
  if (!bias_) {
    no_bias = ScopedTensor(context.arena, x.dtype, {x.shape.cols()});
    context.kernels.zero(no_bias);
  }
  context.kernels.layer_norm({.x = as_rows(x),
                              .gain = weights[0],
                              .bias = bias_ ? weights[1] : no_bias,
                              .y = as_rows(y),
                              .mean = mean,
                              .rstd = rstd,
                              .epsilon = epsilon_,
                              .sum = sum});
}

void LayerNorm::backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved,
                               ConstTensorView residual) const {
  saved.reference(kDy, dy);
  if (dx.absent()) return;
  context.kernels.layer_norm_backward_input({.dy = as_rows(dy),
                                             .x = as_rows(saved[kX]),
                                             .gain = weights[0],
                                             .mean = saved[kMean],
                                             .rstd = saved[kRstd],
                                             .dx = as_rows(dx),
                                             .residual = residual.absent() ? residual : as_rows(residual)});
}

void LayerNorm::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  const Gradient wanted_gain = gradients[0], wanted_bias = bias_ ? gradients[1] : Gradient{};
  if (wanted_gain.view.absent() && wanted_bias.view.absent()) return;
  const ConstTensorView like = wanted_gain.view.absent() ? wanted_bias.view : wanted_gain.view;
  const int64_t hidden = saved[kX].shape.cols();
  const WantedOrScratch gain(context, wanted_gain, like, hidden), bias(context, wanted_bias, like, hidden);
  context.kernels.layer_norm_backward_weight({.dy = as_rows(saved[kDy]),
                                              .x = as_rows(saved[kX]),
                                              .mean = saved[kMean],
                                              .rstd = saved[kRstd],
                                              .dgain = gain.gradient.view,
                                              .dbias = bias.gradient.view,
                                              .accumulate_gain = gain.gradient.accumulate,
                                              .accumulate_bias = bias.gradient.accumulate});
}

RmsNorm::RmsNorm(int64_t hidden, double epsilon) : Norm(gain_and_bias(hidden, false)), epsilon_(static_cast<float>(epsilon)) {}

void RmsNorm::run(Context& context, Weights weights, ConstTensorView x, const kernels::DropoutAdd& sum, TensorView y,
                  Saved& saved) const {
  saved.reference(kX, x);
  const TensorView rstd = saved.keep(context.arena, kRstd, statistics_dtype(x.dtype), {x.shape.rows()});
  context.kernels.rms_norm(
      {.x = as_rows(x), .gain = weights[0], .y = as_rows(y), .rstd = rstd, .epsilon = epsilon_, .sum = sum});
}

void RmsNorm::backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved,
                             ConstTensorView residual) const {
  saved.reference(kDy, dy);
  if (dx.absent()) return;
  context.kernels.rms_norm_backward_input({.dy = as_rows(dy),
                                           .x = as_rows(saved[kX]),
                                           .gain = weights[0],
                                           .rstd = saved[kRstd],
                                           .dx = as_rows(dx),
                                           .residual = residual.absent() ? residual : as_rows(residual)});
}

void RmsNorm::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  const Gradient& dgain = gradients[0];
  if (dgain.view.absent()) return;
  context.kernels.rms_norm_backward_weight({.dy = as_rows(saved[kDy]),
                                            .x = as_rows(saved[kX]),
                                            .rstd = saved[kRstd],
                                            .dgain = dgain.view,
                                            .accumulate = dgain.accumulate});
}

std::unique_ptr<Norm> make_norm(NormKind kind, int64_t hidden, double epsilon, bool bias) {
  if (kind == NormKind::RmsNorm) return std::make_unique<RmsNorm>(hidden, epsilon);
  return std::make_unique<LayerNorm>(hidden, epsilon, bias);
}

}  // namespace trivet::model
