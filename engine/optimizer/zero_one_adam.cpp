#include "engine/optimizer/zero_one_adam.h"

#include "engine/optimizer/group_scalars.h"
#include "engine/optimizer/signed_momentum.h"
#include "kernels/kernels.h"

namespace trivet {
namespace {

// The states, as optimizer_state_names() has them. The sum is 0 except between synchronisations.
enum ZeroOneAdamState { kOwnMomentum, kFrozenVariance, kMomentumSum };

// The only row of parameter_scalars().
constexpr int kLearningRateSum = 0;

kernels::LocalAdam local_adam(const zero::OwnedRange& range, int64_t first, int64_t count) {
  const auto own = [&](TensorView view) { return part_of(view, first, count); };
  return {.master = own(range.master),
          .moment1 = own(range.states[kOwnMomentum]),
          .sum = own(range.states[kMomentumSum]),
          .copy_out = own(range.copy_out),
          .moment2 = own(range.states[kFrozenVariance])};
}

}  // namespace

UpdateKind ZeroOneAdamRule::kind_of(const StepScalars& scalars) const {
  return kind_of_update(context_.config, static_cast<int64_t>(scalars.update.value()));
}

void ZeroOneAdamRule::update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) {
  switch (kind_of(scalars)) {
    case UpdateKind::SumsGradients: {
      StepScalars uncorrected = scalars;
      uncorrected.correction1 = uncorrected.correction2 = 1.0;
      return pending_.add(side, elements, uncorrected, scalars.lr, context_.config);
    }
    case UpdateKind::SendsSigns: return add_to_error(side, elements);
    case UpdateKind::Local:
    case UpdateKind::EndsLocalUpdates: return update_locally(side, elements, scalars);
  }
}

// What this rank has to send is its own gradient.
void ZeroOneAdamRule::add_to_error(const UpdateSide& side, const Elements& elements) {
  const TensorView error = elements.group.group->worker_error().slice(elements.range.first + elements.first, elements.count);
  side.kernels.momentum_update({.momentum_buffer = error,
                                .out = error,
                                .gradient = elements.gradient,
                                .verdict = side.verdict,
                                .momentum = 1,
                                .gradient_scale = own_gradient_scale(elements, 1),
                                .nesterov = false});
}

// A synchronisation writes the layers' weights itself.
void ZeroOneAdamRule::update_locally(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) {
  kernels::LocalAdam local = local_adam(elements.range, elements.first, elements.count);
  if (kind_of(scalars) == UpdateKind::EndsLocalUpdates) local.copy_out = {};
  local.gradient = elements.gradient;
  local.verdict = side.verdict;
  local.lr = scalars.lr;
  local.beta1 = context_.config.beta1;
  local.epsilon = context_.config.epsilon;
  local.weight_decay = elements.weight_decay;
  local.gradient_scale = own_gradient_scale(elements, 1);
  side.kernels.local_adam(local);
}

void ZeroOneAdamRule::finish(const StepScalars& scalars) {
  const UpdateKind kind = kind_of(scalars);
  if (kind == UpdateKind::SumsGradients) return;
  const bool first_local = static_cast<int64_t>(scalars.update.value()) == context_.config.var_freeze_step + 1;
  for (const OwnedGroup& owned : context_.owned.groups()) {
    zero::ParameterGroup& group = *owned.group;
    if (kind == UpdateKind::SendsSigns) {
      follow_average_gradient(group, scalars);
      continue;
    }
    if (first_local) forget_errors(group);
    const double lr_sum = add_learning_rate(group, scalars.lr.value(), kind);
    if (kind == UpdateKind::EndsLocalUpdates) synchronise(group, lr_sum);
  }
}

void ZeroOneAdamRule::follow_average_gradient(zero::ParameterGroup& group, const StepScalars& scalars) {
  const TensorView average = group.owned().states[kMomentumSum];
  average_by_signs(group, average, context_.resources);
  adam_of_frozen_variance(group, {.gradient = average, .lr = scalars.lr, .beta1 = context_.config.beta1}, context_.config,
                          context_.resources);
  kernels().zero(average);
}

void ZeroOneAdamRule::forget_errors(zero::ParameterGroup& group) {
  kernels().zero(group.worker_error());
  kernels().zero(group.server_error());
}

// Returns the sum since the last synchronisation, with this update; after a synchronisation it begins anew.
double ZeroOneAdamRule::add_learning_rate(zero::ParameterGroup& group, double lr, UpdateKind kind) {
  GroupScalars kept(group, kernels());
  const auto sum = static_cast<float>(static_cast<double>(kept.at(kLearningRateSum, 0)) + lr);
  for (size_t i = 0; i < kept.parameters(); ++i)
    kept.at(kLearningRateSum, i) = kind == UpdateKind::EndsLocalUpdates ? 0.0f : sum;
  kept.write(kernels());
  return static_cast<double>(sum);
}

void ZeroOneAdamRule::synchronise(zero::ParameterGroup& group, double lr_sum) {
  if (kernels().device() == Device::Meta) lr_sum = 1;  // plans count what a synchronisation sends
  if (lr_sum == 0) return;
  const TensorView sum = group.owned().states[kMomentumSum];
  kernels().add(sum, group.worker_error());
  average_by_signs(group, sum, context_.resources);
  adam_of_frozen_variance(group, {.gradient = sum, .lr = lr_sum, .gradient_scale = 1 / lr_sum, .decays = false},
                          context_.config, context_.resources);
  kernels().zero(sum);
}

// The momentum and the sum stay: what follows them is lr times 0.
void ZeroOneAdamRule::finish_load() {
  for (const OwnedGroup& owned : context_.owned.groups()) {
    const zero::OwnedRange range = owned.group->owned();
    kernels::LocalAdam local = local_adam(range, 0, range.count);
    local.gradient = range.states[kMomentumSum];
    local.lr = 0.0;
    local.beta1 = 1.0;
    local.epsilon = context_.config.epsilon;
    kernels().local_adam(local);
  }
}

}  // namespace trivet
