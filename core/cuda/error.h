// Turns errors of the CUDA runtime into DeviceError. The message names the device, the call, CUDA's name and text for the
// error, and what to do if a user can do something about it.
//
//   CUDA_CHECK(cudaEventRecord(event, stream));
//   cuda:0: cudaEventRecord(event, stream): cudaErrorIllegalAddress (an illegal memory access was encountered); a kernel ...
//
// Kernels fail after they are launched: the call in the message is where the error was found, not where it happened.
//
// Exit codes: 19 for out of memory; 2 for a GPU or driver that is missing or too old; 22 for one that fails; 70 (a defect) for
// everything else.
#pragma once

#include <cuda_runtime.h>

#include <string>

namespace trivet::cuda {

// Throws unless `error` is success. Clears the runtime's last error, so that the next check does not see it again.
void check(cudaError_t error, const char* call);

// CUDA's name and text for the error, and what to do.
std::string describe(cudaError_t error);

}  // namespace trivet::cuda

#define CUDA_CHECK(call) ::trivet::cuda::check((call), #call)
