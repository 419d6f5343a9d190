// The number that the loss of an fp16 run is multiplied by, so that small gradients do not vanish.
//
// The dynamic scale follows DeepSpeed's keys: each overflow uses up one unit of hysteresis, and the overflow that meets the
// last unit halves the scale. After loss_scale_window clean steps the scale is doubled and the hysteresis refilled. An overflow
// at min_loss_scale ends the run. All ranks must pass the same `overflow`; they then agree on the scale without communicating.
// One thread at a time.
#pragma once

#include <cstdint>

#include "engine/checkpoint/run_state.h"
#include "engine/config/optimizer_config.h"

namespace trivet {

class LossScale {
 public:
  explicit LossScale(const Fp16Config& config);  // not enabled: always 1

  double value() const { return state_.scale; }
  bool dynamic() const { return dynamic_; }

  // Called after each step. Throws NumericsError when gradients overflow and the scale cannot be lowered any further.
  void update(bool overflow);

  const LossScaleState& state() const { return state_; }
  void restore(const LossScaleState& state);  // has no effect on a static scale

 private:
  void overflowed();
  void went_well();

  Fp16Config config_;
  bool dynamic_;
  LossScaleState state_;
};

}  // namespace trivet
