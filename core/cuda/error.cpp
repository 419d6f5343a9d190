#include "core/cuda/error.h"

#include <fmt/format.h>

#include <string>

#include "core/error.h"

namespace trivet::cuda {

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw DeviceError(ExitCode::Internal,
                    fmt::format("cuda: {}: {} ({})", call, cudaGetErrorName(error), cudaGetErrorString(error)));
}

}  // namespace trivet::cuda
