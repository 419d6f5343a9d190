// Errors of the CUDA runtime as DeviceError: the call, the device, CUDA's name and text, and what to do about those that a user
// can do something about.
//
//   CUDA_CHECK(cudaEventRecord(event, stream));
#pragma once

#include <cuda_runtime.h>

namespace trivet::cuda {

// Throws unless `error` is success. The runtime's note of the error is cleared, so that the next check does not see it again.
void check(cudaError_t error, const char* call);

}  // namespace trivet::cuda

#define CUDA_CHECK(call) ::trivet::cuda::check((call), #call)
