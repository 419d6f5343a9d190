// The kernels of a CUDA device: one function compute() for the arguments of each kernel (the headers in kernels/kernels.h). The
// caller has checked the arguments; all tensors are in device memory.
//
// A function enqueues its work on the stream of its Launch and returns. It neither makes the host wait nor allocates memory.
// Where the arithmetic allows it, results have the same bits as on the CPU (these files are compiled without contraction of
// products and sums). Sums over threads are made in an order that depends only on shapes.
#pragma once

#include <cuda_runtime.h>

#include "kernels/kernels.h"

namespace trivet::kernels::cuda {

// Arguments that every kernel needs in addition to its own.
struct Launch {
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;
  // Scratch memory of the stream, 256-byte aligned, with at least workspace_bytes() of the call (kernels/workspace.h). Its
  // contents are undefined.
  TensorView workspace;
};

#define TRIVET_DECLARE(Arguments, ...) void compute(const Arguments& args, const Launch& launch);
TRIVET_NAMED_KERNELS(TRIVET_DECLARE)
TRIVET_OTHER_KERNELS(TRIVET_DECLARE)
#undef TRIVET_DECLARE

}  // namespace trivet::kernels::cuda
