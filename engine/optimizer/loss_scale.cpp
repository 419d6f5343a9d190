#include "engine/optimizer/loss_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace trivet {

LossScale::LossScale(const Fp16Config& config) : config_(config), dynamic_(config.enabled && config.loss_scale == 0) {
  state_.hysteresis = config.hysteresis;
  if (dynamic_)
    state_.scale = std::ldexp(1.0, static_cast<int>(config.initial_scale_power));
  else if (config.enabled)
    state_.scale = config.loss_scale;
}

void LossScale::update(bool overflow) {
  if (!dynamic_) return;
  overflow ? overflowed() : went_well();
}

void LossScale::overflowed() {
  state_.clean_steps = 0;
  if (state_.hysteresis > 1) {
    --state_.hysteresis;
    return;
  }
  if (state_.scale == config_.min_loss_scale)
    throw NumericsError(
        fmt::format("fp16: gradients overflow at the smallest loss scale, fp16.min_loss_scale {}; lower the learning "
                    "rate, or train in bf16, which needs no loss scale",
                    config_.min_loss_scale));
  state_.scale = std::max(state_.scale / 2, config_.min_loss_scale);
}

// As in DeepSpeed, windows are counted from the step after the first clean one.
void LossScale::went_well() {
  if (config_.consecutive_hysteresis) state_.hysteresis = config_.hysteresis;
  const int64_t stable_steps = state_.clean_steps++;
  if (stable_steps == 0 || stable_steps % config_.loss_scale_window != 0) return;
  state_.hysteresis = config_.hysteresis;
  state_.scale *= 2;
}

void LossScale::restore(const LossScaleState& state) {
  if (dynamic_) state_ = state;
}

}  // namespace trivet
