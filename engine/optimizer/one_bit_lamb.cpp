#include "engine/optimizer/one_bit_lamb.h"

#include <algorithm>
#include <cmath>

#include "engine/config/optimizer_states.h"
#include "engine/optimizer/group_scalars.h"
#include "engine/optimizer/signed_momentum.h"
#include "kernels/kernels.h"

namespace trivet {
namespace {

// A block of signs never has elements of two parameters (zero/shard_layout.cpp).
static_assert(kernels::kSumBlock % kernels::kQuantizedBlock == 0);

// The states, as optimizer_state_names() has them. Between add_own_gradient() and the update, the third is the momentum before
// both.
enum OneBitLambState { kMomentum, kVariance, kUpdate, kFresh };

int64_t update_of(const StepScalars& scalars) { return static_cast<int64_t>(scalars.update.value()); }

StepScalars without_correction(StepScalars scalars) {
  scalars.correction1 = scalars.correction2 = 1.0;
  return scalars;
}

template <typename T>
TensorView view_of(std::vector<T>& values) {
  return {values.data(), kDTypeOf<T>, {std::ssize(values)}};
}

TensorView part_of(TensorView view, const zero::FlatParameter& parameter) {
  return trivet::part_of(view, parameter.offset, parameter.elements());
}

}  // namespace

double next_ratio_factor(double largest, double share, double last, const OptimizerConfig& config) {
  const double factor = std::clamp(largest * share + (1 - share), config.factor_min, config.factor_max);
  return std::clamp(factor, last * (1 - config.factor_threshold), last * (1 + config.factor_threshold));
}

OneBitLambRule::OneBitLambRule(const RuleContext& context) : context_(context), lamb_(context) {
  const RankResources& resources = context.resources;
  const int64_t parameters = std::ssize(context.owned.all());
  largest_ = Buffer(resources.allocator, resources.meter, MemoryCategory::Buffers, DType::Float32, {parameters});
  sums_on_host_.resize(parameters * 2 * ExactSum::kWords);
  largest_on_host_.resize(parameters);
}

void OneBitLambRule::update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) {
  if (!has_own_gradients(context_.config, update_of(scalars))) return lamb_.update(side, elements, without_correction(scalars));
  side.kernels.copy(elements.state(kMomentum), elements.state(kUpdate));
  add_own_gradient(side, elements, context_.config);
}

void OneBitLambRule::finish(const StepScalars& scalars) {
  if (!has_own_gradients(context_.config, update_of(scalars))) {
    lamb_.finish(without_correction(scalars));
    return average_ratios();
  }
  if (update_of(scalars) == context_.config.freeze_step + 1) freeze();
  device().kernels.zero(largest_.view());
  device().kernels.zero(lamb_.sums(device(), 0, context_.owned.all().size()));
  for (const OwnedGroup& group : context_.owned.groups()) {
    average_momentum(*group.group, context_.resources);
    make_updates(group);
  }
  read_sums();
  for (const OwnedGroup& group : context_.owned.groups()) apply_updates(group, scalars);
}

void OneBitLambRule::average_ratios() {
  for (const OwnedGroup& group : context_.owned.groups()) {
    const int64_t parameters = std::ssize(group.group->layout().parameters);
    device().kernels.average_ratios({.square_sums = lamb_.sums(device(), group.first_parameter, parameters),
                                     .averages = group.group->parameter_scalars().slice(kFrozenRatio * parameters, parameters),
                                     .verdict = device().verdict,
                                     .beta = context_.config.ratio_beta,
                                     .min_ratio = context_.config.min_coefficient,
                                     .max_ratio = context_.config.max_coefficient});
  }
}

// ---- updates with signs

// Before the first of them.
void OneBitLambRule::freeze() {
  for (const OwnedGroup& group : context_.owned.groups()) {
    const zero::OwnedRange range = group.group->owned();
    device().kernels.copy(range.states[kVariance], range.states[kFresh]);
    GroupScalars scalars(*group.group, device().kernels);
    for (size_t i = 0; i < group.group->layout().parameters.size(); ++i) scalars.at(kRatioFactor, i) = 1;
    scalars.write(device().kernels);
  }
}

void OneBitLambRule::make_updates(const OwnedGroup& group) {
  const zero::OwnedRange range = group.group->owned();
  size_t parameter = group.first_parameter;
  for (const zero::FlatParameter& flat : group.group->layout().parameters) {
    device().kernels.fresh_variance({.moment = part_of(range.states[kMomentum], flat),
                                     .earlier = part_of(range.states[kUpdate], flat),
                                     .variance = part_of(range.states[kVariance], flat),
                                     .fresh = part_of(range.states[kFresh], flat),
                                     .largest = largest_.view().slice(static_cast<int64_t>(parameter), 1),
                                     .beta1 = context_.config.beta1,
                                     .beta2 = context_.config.beta2,
                                     .epsilon = context_.config.epsilon});
    const auto update_with = [&](double weight_decay, TensorView sum) {
      make_update(range, flat, weight_decay);
      device().kernels.sum_of_squares(part_of(range.states[kUpdate], flat), 1.0, kernels::kSumBlock, sum);
    };
    const double decay = weight_decay_of(flat, context_.config);
    if (decay > 0) update_with(0, without_decay(parameter));
    update_with(decay, of_update(parameter));
    ++parameter;
  }
}

// LAMB's update from the moments at hand: with beta1 and beta2 1 they stay, whatever the gradient.
void OneBitLambRule::make_update(const zero::OwnedRange& range, const zero::FlatParameter& flat, double weight_decay) {
  device().kernels.lamb_update({.master = part_of(range.master, flat),
                                .moment1 = part_of(range.states[kMomentum], flat),
                                .moment2 = part_of(range.states[kVariance], flat),
                                .update = part_of(range.states[kUpdate], flat),
                                .gradient = part_of(range.states[kMomentum], flat),
                                .beta1 = 1.0,
                                .beta2 = 1.0,
                                .epsilon = context_.config.epsilon,
                                .weight_decay = weight_decay});
}

void OneBitLambRule::apply_updates(const OwnedGroup& group, const StepScalars& scalars) {
  kernels::Kernels& kernels = device().kernels;
  const zero::OwnedRange range = group.group->owned();
  const auto& parameters = group.group->layout().parameters;
  GroupScalars kept(*group.group, kernels);
  for (size_t i = 0; i < parameters.size(); ++i) {
    float& factor = kept.at(kRatioFactor, i);
    factor = static_cast<float>(ratio_factor(group.first_parameter + i, parameters[i], static_cast<double>(factor)));
    kernels.apply_update({.master = part_of(range.master, parameters[i]),
                          .copy_out = part_of(range.copy_out, parameters[i]),
                          .update = part_of(range.states[kUpdate], parameters[i]),
                          .lr = scalars.lr,
                          .scale = static_cast<double>(kept.at(kFrozenRatio, i)) * static_cast<double>(factor)});
  }
  kept.write(kernels);
}

double OneBitLambRule::ratio_factor(size_t parameter, const zero::FlatParameter& flat, double last) const {
  const int64_t* const sums = &sums_on_host_[2 * parameter * ExactSum::kWords];
  const double update = std::sqrt(ExactSum::value_of(sums + ExactSum::kWords));
  const bool decays = weight_decay_of(flat, context_.config) > 0 && update > 0;
  const double share = decays ? std::min(1.0, std::sqrt(ExactSum::value_of(sums)) / update) : 1;
  return next_ratio_factor(static_cast<double>(largest_on_host_[parameter]), share, last, context_.config);
}

// Waits for the device.
void OneBitLambRule::read_sums() {
  device().kernels.to_host(lamb_.sums(device(), 0, context_.owned.all().size()), view_of(sums_on_host_));
  device().kernels.to_host(largest_.view(), view_of(largest_on_host_));
}

}  // namespace trivet
