#include "engine/optimizer/step_scalars.h"

#include "kernels/kernels.h"

namespace trivet {

StepScalars step_scalars(const StepNumbers& numbers, const OptimizerConfig& optimizer) {
  const auto share = [&](double lr) { return lr > 0 ? numbers.lr * lr / optimizer.lr : numbers.lr; };
  const auto correction = [&](double beta) {
    return optimizer.bias_correction ? kernels::bias_correction(beta, numbers.update) : 1.0;
  };
  return {.step = static_cast<double>(numbers.step),
          .loss_scale = numbers.loss_scale,
          .inverse_loss_scale = 1.0 / numbers.loss_scale,
          .update = static_cast<double>(numbers.update),
          .lr = numbers.lr,
          .adam_lr = share(optimizer.adam_lr),
          .muon_lr = share(optimizer.muon_lr),
          .beta1 = numbers.beta1,
          .beta2 = numbers.beta2,
          .correction1 = correction(numbers.beta1),
          .correction2 = correction(numbers.beta2)};
}

DeviceScalars::DeviceScalars(Allocator& allocator, MemoryMeter& meter)
    : memory_(allocator, meter, MemoryCategory::Buffers, DType::Float64, {StepScalars::kCount}) {}

StepScalars DeviceScalars::copy(kernels::Kernels& kernels, StepScalars scalars) {
  std::array<double, StepScalars::kCount> values{};
  const TensorView memory = memory_.view();
  const auto all = scalars.all();
  for (size_t i = 0; i < all.size(); ++i) {
    values[i] = all[i]->base;
    if (memory.data) all[i]->on_device = static_cast<const double*>(memory.data) + i;  // a rehearsal has no memory
  }
  kernels.from_host({values.data(), DType::Float64, memory.shape}, memory);
  return scalars;
}

}  // namespace trivet
