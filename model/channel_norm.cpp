#include "model/channel_norm.h"

#include <fmt/format.h>

#include "kernels/kernels.h"

namespace trivet::model {

ChannelNorm::ChannelNorm(const Options& options)
    : sets_{.groups = options.groups}, epsilon_(static_cast<float>(options.epsilon)) {
  const Shape channels{options.channels};
  const Init zeros{Init::Kind::Zeros, 0}, ones{Init::Kind::Ones, 0};
  parameters_.push_back({.name = "weight", .shape = channels, .init = ones, .decay = false});
  parameters_.push_back({.name = "bias", .shape = channels, .init = zeros, .decay = false});
  if (!is_batch_norm()) return;
  const ParameterUpdate average{ParameterUpdate::Kind::RunningAverage, options.momentum};
  parameters_.push_back({.name = "running_mean", .shape = channels, .init = zeros, .decay = false, .update = average});
  parameters_.push_back({.name = "running_var", .shape = channels, .init = ones, .decay = false, .update = average});
}

// The normalized value of a single value is 0, and so is its gradient.
std::string ChannelNorm::training_problem(const Shape& input) const {
  if (sets_.elements(input) != 1) return "";
  return fmt::format("needs at least 2 values to normalize, but has 1 of {}; use larger {}", to_string(input),
                     is_batch_norm() ? "microbatches" : "images or fewer groups");
}

void ChannelNorm::forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const {
  if (is_batch_norm() && !context.training)
    return context.kernels.normalize_with({.x = x,
                                           .gain = weights[kGain],
                                           .bias = weights[kBias],
                                           .mean = weights[kRunningMean],
                                           .variance = weights[kRunningVariance],
                                           .y = y,
                                           .epsilon = epsilon_});
  const Shape statistics{sets_.count(x.shape)};
  saved.reference(kX, x);
  context.kernels.channel_norm({.x = x,
                                .gain = weights[kGain],
                                .bias = weights[kBias],
                                .y = y,
                                .mean = saved.keep(context.arena, kMean, statistics_dtype(x.dtype), statistics),
                                .rstd = saved.keep(context.arena, kRstd, statistics_dtype(x.dtype), statistics),
                                .sets = sets_,
                                .epsilon = epsilon_});
}

void ChannelNorm::backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const {
  saved.reference(kDy, dy);
  if (dx.absent()) return;
  context.kernels.channel_norm_backward_input(
      {.dy = dy, .x = saved[kX], .gain = weights[kGain], .mean = saved[kMean], .rstd = saved[kRstd], .dx = dx, .sets = sets_});
}

void ChannelNorm::backward_weight(Context& context, Gradients gradients, const Saved& saved) const {
  const Gradient &gain = gradients[kGain], &bias = gradients[kBias];
  if (!gain.view.absent() || !bias.view.absent())
    context.kernels.channel_norm_backward_weight({.dy = saved[kDy],
                                                  .x = saved[kX],
                                                  .mean = saved[kMean],
                                                  .rstd = saved[kRstd],
                                                  .dgain = gain.view,
                                                  .dbias = bias.view,
                                                  .sets = sets_,
                                                  .accumulate_gain = gain.accumulate,
                                                  .accumulate_bias = bias.accumulate});
  if (is_batch_norm()) add_statistics(context, gradients, saved);
}

void ChannelNorm::add_statistics(Context& context, Gradients gradients, const Saved& saved) const {
  const Gradient &mean = gradients[kRunningMean], &variance = gradients[kRunningVariance];
  if (mean.view.absent() && variance.view.absent()) return;
  context.kernels.add_statistics({.mean = saved[kMean],
                                  .rstd = saved[kRstd],
                                  .mean_sum = mean.view,
                                  .variance_sum = variance.view,
                                  .elements = sets_.elements(saved[kX].shape),
                                  .epsilon = epsilon_,
                                  .scale = context.gradient_scale,
                                  .accumulate_mean = mean.accumulate,
                                  .accumulate_variance = variance.accumulate});
}

}  // namespace trivet::model
