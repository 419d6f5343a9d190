#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "core/cuda/launch.h"
#include "kernels/cuda/products/around_products.h"

namespace trivet::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
using SumOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ inline float widen(float x) { return x; }
__device__ inline double widen(double x) { return x; }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float widen(__half x) { return __half2float(x); }

template <typename T, typename Sum>
__device__ inline T narrow(Sum x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16(x);
  else if constexpr (std::is_same_v<T, __half>)
    return __float2half(x);
  else
    return x;
}

template <typename Body>
void dispatch(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::Float32: return body.template operator()<float>();
    case DType::BFloat16: return body.template operator()<__nv_bfloat16>();
    case DType::Float16: return body.template operator()<__half>();
    case DType::Float64: return body.template operator()<double>();
    default: throw std::logic_error("matmul: not a floating-point type");
  }
}

// Calls body.operator()<Index>() with a type that can count to `count`: 64-bit divisions are slower than memory.
template <typename Body>
void dispatch_index(int64_t count, const Body& body) {
  if (count <= std::numeric_limits<int32_t>::max())
    body.template operator()<uint32_t>();
  else
    body.template operator()<uint64_t>();
}

__device__ inline int64_t first_index() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t all_threads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

int grid_for(int64_t work, int blocks) { return static_cast<int>(std::min<int64_t>((work + kThreads - 1) / kThreads, blocks)); }
bool aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

// A Word is copied at a time; cols and stride are counted in words.
template <typename Word, typename Index>
__global__ void __launch_bounds__(kThreads) pack_words(const Word* from, Word* to, int64_t count, Index cols, int64_t stride) {
  for (int64_t i = first_index(); i < count; i += all_threads()) {
    const Index row = static_cast<Index>(i) / cols, col = static_cast<Index>(i) - row * cols;
    to[i] = from[row * stride + col];
  }
}

template <typename Word>
void pack_as(const PackPart& part, int64_t element, int blocks, cudaStream_t stream) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Word));
  const int64_t cols = part.cols * element / kBytes, count = part.rows * cols;
  dispatch_index(count, [&]<typename Index>() {
    TRIVET_LAUNCH((pack_words<Word, Index>), grid_for(count, blocks), kThreads, 0, stream, static_cast<const Word*>(part.from),
                  static_cast<Word*>(part.to), count, static_cast<Index>(cols), part.stride * element / kBytes);
  });
}

template <typename T>
__global__ void __launch_bounds__(kThreads) add_elements(const T* from, T* to, int64_t count) {
  for (int64_t i = first_index(); i < count; i += all_threads()) to[i] += from[i];
}

template <typename Out, typename Bias, typename Index>
__global__ void __launch_bounds__(kThreads) finish_elements(const SumOf<Out>* sum, Out* out, const Bias* bias, int64_t count,
                                                            Index cols, int64_t out_stride, bool accumulate) {
  for (int64_t i = first_index(); i < count; i += all_threads()) {
    const Index row = static_cast<Index>(i) / cols, col = static_cast<Index>(i) - row * cols;
    const int64_t place = row * out_stride + col;
    SumOf<Out> value = sum ? sum[i] : SumOf<Out>{0};
    if (bias) value += widen(bias[col]);
    if (accumulate) value = widen(out[place]) + value;
    out[place] = narrow<Out>(value);
  }
}

}  // namespace

void pack_part(const PackPart& part, int blocks, cudaStream_t stream) {
  if (part.rows == 0 || part.cols == 0) return;
  const int64_t element = size_of(part.dtype);
  const bool wide = aligned(part.from) && aligned(part.to) && part.cols * element % 16 == 0 && part.stride * element % 16 == 0;
  if (wide) return pack_as<uint4>(part, element, blocks, stream);
  if (element == 8) return pack_as<double>(part, element, blocks, stream);
  if (element == 4) return pack_as<float>(part, element, blocks, stream);
  pack_as<unsigned short>(part, element, blocks, stream);
}

void add_part(const void* from, void* to, DType dtype, int64_t count, int blocks, cudaStream_t stream) {
  if (count == 0) return;
  if (dtype == DType::Float64)
    TRIVET_LAUNCH(add_elements<double>, grid_for(count, blocks), kThreads, 0, stream, static_cast<const double*>(from),
                  static_cast<double*>(to), count);
  else
    TRIVET_LAUNCH(add_elements<float>, grid_for(count, blocks), kThreads, 0, stream, static_cast<const float*>(from),
                  static_cast<float*>(to), count);
}

void finish_part(const FinishPart& part, int blocks, cudaStream_t stream) {
  const int64_t count = part.rows * part.cols;
  if (count == 0) return;
  dispatch(part.out_dtype, [&]<typename Out>() {
    dispatch(part.bias ? part.bias_dtype : part.out_dtype, [&]<typename Bias>() {
      if constexpr (std::is_same_v<Bias, double> == std::is_same_v<Out, double>)
        dispatch_index(count, [&]<typename Index>() {
          TRIVET_LAUNCH((finish_elements<Out, Bias, Index>), grid_for(count, blocks), kThreads, 0, stream,
                        static_cast<const SumOf<Out>*>(part.sum), static_cast<Out*>(part.out),
                        static_cast<const Bias*>(part.bias), count, static_cast<Index>(part.cols), part.out_stride,
                        part.accumulate);
        });
    });
  });
}

}  // namespace trivet::kernels::cuda
