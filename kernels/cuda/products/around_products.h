// The work around cuBLASLt that is needed when its own epilogues do not suffice: copies of parts of matrices, sums of partial
// products, bias and rounding.
#pragma once

#include <cuda_runtime.h>

#include "core/tensor_view.h"

namespace trivet::kernels::cuda {

// to[rows, cols] = from[rows, cols]. `to` is dense; rows of `from` are `stride` elements apart.
struct PackPart {
  const void* from = nullptr;
  void* to = nullptr;
  DType dtype = DType::Float32;
  int64_t rows = 0, cols = 0, stride = 0;
};
void pack_part(const PackPart& part, int blocks, cudaStream_t stream);

// to[i] += from[i]; float32 or float64.
void add_part(const void* from, void* to, DType dtype, int64_t count, int blocks, cudaStream_t stream);

// out[rows, cols] (+)= sum (+ bias[cols]), rounded once. sum is dense and float32 (float64 for float64), and may be out; null
// stands for zeros. bias has any float type; null: no bias.
struct FinishPart {
  const void* sum = nullptr;
  void* out = nullptr;
  DType out_dtype = DType::Float32;
  int64_t rows = 0, cols = 0, out_stride = 0;
  const void* bias = nullptr;
  DType bias_dtype = DType::Float32;
  bool accumulate = false;
};
void finish_part(const FinishPart& part, int blocks, cudaStream_t stream);

}  // namespace trivet::kernels::cuda
