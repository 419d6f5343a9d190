// The Kernels of a CUDA device: checks the arguments as every device does and calls the function of kernels/cuda/math.h on the
// current stream of a rank (core/cuda/streams.h).
//
// Each stream that kernels with scratch memory run on has a workspace of its own, taken when it is first needed: kernels of one
// stream come one after another, those of two do not. The size is the plan's, the largest workspace_bytes() of a step
// (kernels/workspace.h); a kernel that needs more is a defect of the plan and throws std::logic_error. Nothing else is
// allocated.
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
  Allocator* allocator = nullptr;  // of the device; workspaces are reported to the meter as Buffers
  MemoryMeter* meter = nullptr;

  int64_t workspace_bytes = 0;               // of each stream
  std::function<void()> after_wait;          // called when to_host has waited; what it throws, to_host throws
  int64_t staging_bytes = int64_t{4} << 20;  // pinned, for each direction
};

// On the rank's thread.
std::unique_ptr<Kernels> make_cuda_kernels(const CudaKernelsOptions& options);

}  // namespace trivet::kernels
