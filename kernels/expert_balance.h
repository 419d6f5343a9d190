// The arithmetic of balance_experts, shared by all devices.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace trivet::kernels {

// The mean of `all` tokens over the experts is compared with the count of one of them in integers, so that an expert with
// exactly the mean keeps its bias.
TRIVET_HOST_DEVICE inline float balanced_bias(float bias, int64_t all, int64_t experts, int64_t count, double rate) {
  const int64_t lack = all - experts * count;
  const auto step = static_cast<float>(rate);
  return lack > 0 ? bias + step : lack < 0 ? bias - step : bias;
}

}  // namespace trivet::kernels
