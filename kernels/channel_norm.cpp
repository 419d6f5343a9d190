#include "kernels/channel_norm.h"

#include "kernels/costs.h"
#include "kernels/rules.h"

namespace trivet::kernels {
namespace {

void check_sets(const Rules& rules, const NormSets& sets, const ConstTensorView& x) {
  rules.floating(x.dtype);
  rules.require(x.shape.dims() >= 2, "images must be [batch, channels, ...]");
  rules.require(sets.groups == NormSets::kBatch || (sets.groups > 0 && x.shape[1] % sets.groups == 0),
                "groups must divide the channels");
}

void check_statistics(const Rules& rules, const NormSets& sets, const ConstTensorView& x, const ConstTensorView& mean,
                      const ConstTensorView& rstd) {
  rules.types(statistics_type(x.dtype), {mean, rstd});
  rules.sizes(sets.count(x.shape), {mean, rstd});
}

std::string_view variant_of(const NormSets& sets) { return sets.groups == NormSets::kBatch ? "batch" : "group"; }

}  // namespace

void ChannelNorm::check() const {
  const Rules rules("channel_norm", {{"x", x}, {"gain", gain}, {"bias", bias}, {"y", y}, {"mean", mean}, {"rstd", rstd}});
  check_sets(rules, sets, x);
  rules.types(x.dtype, {gain, bias, y});
  rules.shapes(x.shape, {y});
  rules.sizes(x.shape[1], {gain, bias});
  check_statistics(rules, sets, x, mean, rstd);
}

KernelCall ChannelNorm::describe() const {
  return {.kernel = "channel_norm",
          .variant = variant_of(sets),
          .dtype = x.dtype,
          .sizes = {sets.count(x.shape), sets.elements(x.shape)},
          .bound = Bound::Memory,
          .flops = 8 * elements(x),
          .bytes = total_bytes({x, gain, bias, y, mean, rstd})};
}

void ChannelNormBackwardInput::check() const {
  const Rules rules("channel_norm_backward_input",
                    {{"dy", dy}, {"x", x}, {"gain", gain}, {"mean", mean}, {"rstd", rstd}, {"dx", dx}});
  check_sets(rules, sets, x);
  rules.types(x.dtype, {dy, gain, dx});
  rules.shapes(x.shape, {dy, dx});
  rules.sizes(x.shape[1], {gain});
  check_statistics(rules, sets, x, mean, rstd);
}

KernelCall ChannelNormBackwardInput::describe() const {
  return {.kernel = "channel_norm_backward_input",
          .variant = variant_of(sets),
          .dtype = x.dtype,
          .sizes = {sets.count(x.shape), sets.elements(x.shape)},
          .bound = Bound::Memory,
          .result = Result::InputGradient,
          .flops = 12 * elements(x),
          .bytes = total_bytes({dy, x, gain, mean, rstd, dx})};
}

void ChannelNormBackwardWeight::check() const {
  const Rules rules("channel_norm_backward_weight",
                    {{"dy", dy}, {"x", x}, {"mean", mean}, {"rstd", rstd}, {"dgain", dgain}, {"dbias", dbias}});
  check_sets(rules, sets, x);
  rules.types(x.dtype, {dy});
  rules.shapes(x.shape, {dy});
  check_statistics(rules, sets, x, mean, rstd);
  for (const TensorView& gradient : {dgain, dbias}) {
    if (gradient.absent()) continue;
    rules.parameter_gradient(x.dtype, gradient);
    rules.sizes(x.shape[1], {gradient});
  }
}

KernelCall ChannelNormBackwardWeight::describe() const {
  return {.kernel = "channel_norm_backward_weight",
          .variant = variant_of(sets),
          .dtype = x.dtype,
          .sizes = {sets.count(x.shape), sets.elements(x.shape)},
          .bound = Bound::Memory,
          .result = Result::WeightGradient,
          .flops = 5 * elements(x),
          .bytes = total_bytes({dy, x, mean, rstd}) + written(dgain, accumulate_gain) + written(dbias, accumulate_bias)};
}

void NormalizeWith::check() const {
  const Rules rules("normalize_with",
                    {{"x", x}, {"gain", gain}, {"bias", bias}, {"mean", mean}, {"variance", variance}, {"y", y}});
  check_sets(rules, {}, x);
  rules.types(x.dtype, {gain, bias, mean, variance, y});
  rules.shapes(x.shape, {y});
  rules.sizes(x.shape[1], {gain, bias, mean, variance});
}

KernelCall NormalizeWith::describe() const {
  return {.kernel = "normalize_with",
          .dtype = x.dtype,
          .sizes = {x.shape[1], NormSets{}.elements(x.shape)},
          .bound = Bound::Memory,
          .flops = 2 * elements(x),
          .bytes = total_bytes({x, gain, bias, mean, variance, y})};
}

void AddStatistics::check() const {
  const Rules rules("add_statistics", {{"mean", mean}, {"rstd", rstd}, {"mean_sum", mean_sum}, {"variance_sum", variance_sum}});
  rules.floating(mean.dtype);
  rules.types(mean.dtype, {rstd});
  rules.sizes(mean.elements(), {rstd});
  rules.require(elements > 0, "a set must have elements");
  for (const TensorView& sum : {mean_sum, variance_sum}) {
    if (sum.absent()) continue;
    rules.floating(sum.dtype);
    rules.sizes(mean.elements(), {sum});
  }
}

KernelCall AddStatistics::describe() const {
  return {.kernel = "add_statistics",
          .dtype = mean.dtype,
          .sizes = elements_of(mean),
          .bound = Bound::Memory,
          .result = Result::WeightGradient,
          .flops = 8 * kernels::elements(mean),
          .bytes = total_bytes({mean, rstd}) + written(mean_sum, accumulate_mean) + written(variance_sum, accumulate_variance)};
}

}  // namespace trivet::kernels
