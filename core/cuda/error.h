// Errors of the CUDA runtime as DeviceError: the device, the call, CUDA's name and text, and what to do about those that a user
// can do something about.
//
//   CUDA_CHECK(cudaEventRecord(event, stream));
//   cuda:0: cudaEventRecord(event, stream): cudaErrorIllegalAddress (an illegal memory access was encountered); a kernel ...
//
// Kernels fail later than they are launched: the call that is named is where it was found, not where it happened.
//
// Exit codes: 19 out of memory; 2 for what is not there or too old; 22 for a GPU or driver that fails; 70, a defect, for the
// rest.
#pragma once

#include <cuda_runtime.h>

#include <string>

namespace trivet::cuda {

// Throws unless `error` is success. The runtime's note of the error is cleared, so that the next check does not see it again.
void check(cudaError_t error, const char* call);

// CUDA's name and text, and what to do.
std::string describe(cudaError_t error);

}  // namespace trivet::cuda

#define CUDA_CHECK(call) ::trivet::cuda::check((call), #call)
