// Biases of experts. A block has some rows, or tokens, and goes over their elements.
#include <algorithm>

#include "kernels/cuda/fused/elements.cuh"
#include "kernels/experts.h"

namespace trivet::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// The expert of a row is the first that ends after it.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    add_expert_bias(const T* bias, const int32_t* ends, T* out, int64_t rows, int64_t width, int experts, int ranges) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    int first = 0, last = experts - 1;
    while (first < last) {
      const int middle = (first + last) / 2;
      if (ends[(middle + 1) * ranges - 1] > row)
        last = middle;
      else
        first = middle + 1;
    }
    const T* const of_expert = bias + first * width;
    for (int64_t e = threadIdx.x; e < width; e += kThreads) {
      T& element = out[row * width + e];
      element = narrow<T>(widen(element) + widen(of_expert[e]));
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    spread_weights(const SumOf<T>* weights, const int32_t* chosen, T* out, int64_t elements, int64_t experts, int of_token) {
  for (int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x; e < elements; e += int64_t{gridDim.x} * kThreads) {
    const int64_t first = e / experts * of_token;
    SumOf<T> weight = 0;
    for (int64_t k = first; k < first + of_token; ++k)
      if (chosen[k] == e % experts) weight = weights[k];
    out[e] = narrow<T>(weight);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    add_chosen(const T* x, const int32_t* chosen, SumOf<T>* out, int64_t choices, int64_t experts, int of_token) {
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < choices; k += int64_t{gridDim.x} * kThreads)
    out[k] += widen(x[k / of_token * experts + chosen[k]]);
}

}  // namespace

void compute(const AddExpertBias& args, const Launch& launch) {
  const int64_t rows = args.out.shape[0];
  if (rows == 0) return;
  dispatch_device_float(args.out.dtype, [&]<typename T>() {
    TRIVET_LAUNCH(add_expert_bias<T>, grid_blocks(rows, launch), kThreads, 0, launch.stream, data_of<T>(args.bias),
                  data_of<int32_t>(args.ends), data_of<T>(args.out), rows, args.out.shape[1],
                  static_cast<int>(args.ends.shape[0]), static_cast<int>(args.ends.shape[1]));
  });
}

void compute(const SpreadWeights& args, const Launch& launch) {
  const int64_t elements = args.out.elements();
  if (elements == 0) return;
  dispatch_device_float(args.out.dtype, [&]<typename T>() {
    TRIVET_LAUNCH(spread_weights<T>, grid_blocks((elements + kThreads - 1) / kThreads, launch), kThreads, 0, launch.stream,
                  data_of<SumOf<T>>(args.weights), data_of<int32_t>(args.chosen), data_of<T>(args.out), elements,
                  args.out.shape[1], static_cast<int>(args.chosen.shape[1]));
  });
}

void compute(const AddChosen& args, const Launch& launch) {
  const int64_t choices = args.chosen.elements();
  if (choices == 0) return;
  dispatch_device_float(args.x.dtype, [&]<typename T>() {
    TRIVET_LAUNCH(add_chosen<T>, grid_blocks((choices + kThreads - 1) / kThreads, launch), kThreads, 0, launch.stream,
                  data_of<T>(args.x), data_of<int32_t>(args.chosen), data_of<SumOf<T>>(args.out), choices, args.x.shape[1],
                  static_cast<int>(args.chosen.shape[1]));
  });
}

}  // namespace trivet::kernels::cuda
