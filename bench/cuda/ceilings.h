// What this GPU gives at best, beside which the figures of kernels are read.
#pragma once

#include "bench/cuda/measure.h"

namespace trivet::cuda {

// Values from -1 to 1 that do not repeat: products of zeros, or of constants, run faster than any real one.
void fill_bfloat16(void* data, int64_t bytes, uint32_t seed, cudaStream_t stream);

// Bytes read and written a second by a copy in device memory of far more than the L2 cache holds.
double copy_bandwidth(cudaStream_t stream, Timer& timer);

// FLOPs a second of a bfloat16 product of 8192 x 8192 x 8192 with float32 sums, on values that do not repeat: the fastest of
// the algorithms that cuBLASLt proposes.
double matrix_rate(cudaStream_t stream, Timer& timer);

}  // namespace trivet::cuda
