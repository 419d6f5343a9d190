// Reads a Number on a device. If the device has the number in its memory, the kernel reads it there when it runs, whatever
// value the launch passed.
#pragma once

#include <cuda_runtime.h>

#include "core/host_device.h"
#include "core/number.h"

namespace trivet::kernels::cuda {

struct ReadNumber {  // for functions of the host and the device (kernels/optimizer_scalars.h); called on the device
  TRIVET_HOST_DEVICE double operator()(const Number& number) const {
    const double base = number.on_device == nullptr ? number.base : *number.on_device;
    return number.divisor == 1 ? base : base / number.divisor;
  }
};
__device__ __forceinline__ double read(const Number& number) { return ReadNumber{}(number); }

}  // namespace trivet::kernels::cuda
