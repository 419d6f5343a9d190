// The best rates that this GPU reaches, with which the figures of kernels are compared.
#pragma once

#include "bench/cuda/measure.h"

namespace trivet::cuda {

// Fills memory with values from -1 to 1 that do not repeat: products of zeros, or of constants, run faster than any real one.
void fill_bfloat16(void* data, int64_t bytes, uint32_t seed, cudaStream_t stream);

// Returns the bytes per second that a copy in device memory reads and writes; the copy is far larger than the L2 cache.
double copy_bandwidth(cudaStream_t stream, Timer& timer);

// Returns the FLOPs per second of a bfloat16 product of 8192 x 8192 x 8192 with float32 sums, on values that do not repeat,
// with the fastest of the algorithms that cuBLASLt proposes.
double matrix_rate(cudaStream_t stream, Timer& timer);

}  // namespace trivet::cuda
