// Sizes and loops that the kernels of images share. x is [B, C, H, W], y is [B, O, P, Q], and R x S is the window.
#pragma once

#include <algorithm>

#include "core/cuda/launch.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace trivet::kernels::cuda {

inline constexpr int kImageThreads = 256;
// The number of blocks that a multiprocessor shall hold at a time. Without this number, ptxas aims at more blocks with
// so few registers that some are spilled.
inline constexpr int kImageBlocks = 4;

struct WindowedImages {
  int64_t images, channels, rows, cols;      // sizes of x
  int64_t out_channels, out_rows, out_cols;  // sizes of y
  int64_t window_rows, window_cols, stride, padding;

  WindowedImages(const Shape& x, const Shape& y, const Window& window)
      : images(x[0]),
        channels(x[1]),
        rows(x[2]),
        cols(x[3]),
        out_channels(y[1]),
        out_rows(y[2]),
        out_cols(y[3]),
        window_rows(window.rows),
        window_cols(window.cols),
        stride(window.stride),
        padding(window.padding) {}

  // use(row or column of x, place in the window) for the pixels of window number `out` that are inside of the image
  template <typename Use>
  static __device__ void for_each_inside(int64_t out, int64_t window, int64_t size, int64_t stride, int64_t padding,
                                         const Use& use) {
    for (int64_t i = 0; i < window; ++i)
      if (const int64_t at = out * stride + i - padding; at >= 0 && at < size) use(at, i);
  }
  template <typename Use>
  __device__ void for_each_row(int64_t out, const Use& use) const {
    for_each_inside(out, window_rows, rows, stride, padding, use);
  }
  template <typename Use>
  __device__ void for_each_col(int64_t out, const Use& use) const {
    for_each_inside(out, window_cols, cols, stride, padding, use);
  }
  // use(number of the window, place in it) for the windows that contain pixel `at`, in ascending order of places
  template <typename Use>
  static __device__ void for_each_window(int64_t at, int64_t window, int64_t outputs, int64_t stride, int64_t padding,
                                         const Use& use) {
    for (int64_t i = 0; i < window; ++i) {
      const int64_t first = at + padding - i;
      if (first >= 0 && first % stride == 0 && first / stride < outputs) use(first / stride, i);
    }
  }
  template <typename Use>
  __device__ void for_each_window_of_row(int64_t row, const Use& use) const {
    for_each_window(row, window_rows, out_rows, stride, padding, use);
  }
  template <typename Use>
  __device__ void for_each_window_of_col(int64_t col, const Use& use) const {
    for_each_window(col, window_cols, out_cols, stride, padding, use);
  }
};

// The elements that this thread computes: use(element) for each.
template <typename Use>
__device__ __forceinline__ void for_each_own(int64_t elements, const Use& use) {
  const int64_t step = int64_t{gridDim.x} * kImageThreads;
  for (int64_t e = int64_t{blockIdx.x} * kImageThreads + threadIdx.x; e < elements; e += step) use(e);
}

inline unsigned image_blocks(int64_t elements) {
  constexpr int64_t kMost = 1 << 16;
  return static_cast<unsigned>(std::clamp<int64_t>((elements + kImageThreads - 1) / kImageThreads, 1, kMost));
}

}  // namespace trivet::kernels::cuda
