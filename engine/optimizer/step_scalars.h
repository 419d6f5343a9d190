// Scalars that change from step to step (learning rate, loss scale ...), kept where kernels can read them.
#pragma once

#include <array>

#include "core/buffer.h"
#include "core/number.h"
#include "engine/config/optimizer_config.h"
#include "kernels/interface.h"

namespace trivet {

// Numbers that the caller of a step provides; equal on all ranks.
struct StepNumbers {
  uint64_t seed = 0;
  int64_t step = 0;    // from 0; random numbers depend on it
  int64_t update = 1;  // from 1; skipped steps do not count
  double lr = 0, beta1 = 0.9, beta2 = 0.999;
  double loss_scale = 1.0;
};

// Numbers that a step's kernels receive.
struct StepScalars {
  Number step = 0.0, loss_scale = 1.0, inverse_loss_scale = 1.0;
  Number update = 1.0, lr = 0.0;
  Number adam_lr = 0.0, muon_lr = 0.0;  // for Muon's two kinds of parameters
  Number beta1 = 0.9, beta2 = 0.999, correction1 = 1.0, correction2 = 1.0;

  static constexpr int kCount = 11;
  std::array<Number*, kCount> all() {
    return {&step,  &loss_scale, &inverse_loss_scale, &update,     &lr, &adam_lr, &muon_lr,
            &beta1, &beta2,      &correction1,        &correction2};
  }
};

StepScalars step_scalars(const StepNumbers& numbers, const OptimizerConfig& optimizer);

// Holds the scalars in device memory. On a CPU this class is not used.
class DeviceScalars {
 public:
  DeviceScalars(Allocator& allocator, MemoryMeter& meter);
  // Copies the scalars to device memory, in stream order, and returns them with pointers to it.
  StepScalars copy(kernels::Kernels& kernels, StepScalars scalars);

 private:
  Buffer memory_;  // float64 [kCount]
};

}  // namespace trivet
