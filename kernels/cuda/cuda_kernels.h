// The Kernels of a CUDA device. Each call checks its arguments as every device does, and calls the function in
// kernels/cuda/math.h on the current stream of a rank (core/cuda/streams.h).
//
// Each stream on which kernels with scratch memory run has a workspace of its own, allocated when it is first needed: kernels
// on one stream run one after another, but kernels on two streams may overlap. The plan sets the size, the largest
// workspace_bytes() of a step (kernels/workspace.h). If a kernel needs more, the plan is wrong and the call throws
// std::logic_error. Nothing else is allocated.
#pragma once

#include <functional>
#include <memory>

#include "core/buffer.h"
#include "core/cuda/streams.h"
#include "kernels/kernels.h"

namespace trivet::kernels {

struct CudaKernelsOptions {
  // These must outlive the kernels.
  const trivet::cuda::Streams* streams = nullptr;
  Allocator* allocator = nullptr;  // device memory; workspaces are reported to the meter as Buffers
  MemoryMeter* meter = nullptr;

  int64_t workspace_bytes = 0;               // per stream
  std::function<void()> after_wait;          // called after to_host has waited; to_host passes on its exceptions
  int64_t staging_bytes = int64_t{4} << 20;  // pinned, for each direction
};

// Must be called on the rank's thread.
std::unique_ptr<Kernels> make_cuda_kernels(const CudaKernelsOptions& options);

}  // namespace trivet::kernels
