// The numbers of a step that are others in the next: as the program uses them, and where a device has them in memory.
#pragma once

#include <array>

#include "core/buffer.h"
#include "core/number.h"
#include "engine/config/config.h"
#include "kernels/kernels.h"

namespace trivet {

// What a step is told; equal on all ranks.
struct StepNumbers {
  uint64_t seed = 0;
  int64_t step = 0;    // from 0; random numbers depend on it
  int64_t update = 1;  // from 1; skipped steps do not count
  double lr = 0, beta1 = 0.9, beta2 = 0.999;
  double loss_scale = 1.0;
};

// What a step's kernels are told.
struct StepScalars {
  Number step = 0.0, loss_scale = 1.0, inverse_loss_scale = 1.0;
  Number update = 1.0, lr = 0.0;
  Number adam_lr = 0.0, muon_lr = 0.0;  // of Muon's two kinds of parameters
  Number beta1 = 0.9, beta2 = 0.999, correction1 = 1.0, correction2 = 1.0;

  static constexpr int kCount = 11;
  std::array<Number*, kCount> all() {
    return {&step,  &loss_scale, &inverse_loss_scale, &update,     &lr, &adam_lr, &muon_lr,
            &beta1, &beta2,      &correction1,        &correction2};
  }
};

StepScalars step_scalars(const StepNumbers& numbers, const OptimizerConfig& optimizer);

// Their place in the memory of a device. On a CPU there is no object of this class.
class DeviceScalars {
 public:
  DeviceScalars(Allocator& allocator, MemoryMeter& meter);
  // The same numbers, which the device's memory holds from here on in the order of the stream.
  StepScalars copy(kernels::Kernels& kernels, StepScalars scalars);

 private:
  Buffer memory_;  // float64 [kCount]
};

}  // namespace trivet
