// Pooling: a thread computes one element of y or of dx. For the gradient of a maximum it finds the largest pixel of each window
// that contains its own, so that no two threads add to one element.
#include "kernels/cuda/images/planes.cuh"

namespace trivet::kernels::cuda {
namespace {

// Where the largest pixel of a window is, as an index into the plane; the first of several. A NaN counts as the largest.
template <typename T>
__device__ int64_t place_of_maximum(const WindowedImages& s, const T* plane, int64_t out_row, int64_t out_col) {
  using Sum = SumOf<T>;
  int64_t place = -1;
  Sum largest = 0;
  s.for_each_row(out_row, [&](int64_t row, int64_t) {
    s.for_each_col(out_col, [&](int64_t col, int64_t) {
      const Sum value = widen(plane[row * s.cols + col]);
      if (place >= 0 && !(value > largest || (value != value && largest == largest))) return;
      place = row * s.cols + col;
      largest = value;
    });
  });
  return place;
}

template <typename T, bool kMax>
__global__ void __launch_bounds__(kImageThreads, kImageBlocks)
    pool_windows(WindowedImages s, const T* x, T* y, int64_t elements) {
  using Sum = SumOf<T>;
  for_each_own(elements, [&](int64_t e) {
    const int64_t col = e % s.out_cols, row = e / s.out_cols % s.out_rows;
    const T* plane = x + e / (s.out_cols * s.out_rows) * s.rows * s.cols;
    if constexpr (kMax) {
      y[e] = plane[place_of_maximum(s, plane, row, col)];
    } else {
      Sum sum = 0;
      s.for_each_row(row, [&](int64_t at_row, int64_t) {
        s.for_each_col(col, [&](int64_t at_col, int64_t) { sum += widen(plane[at_row * s.cols + at_col]); });
      });
      y[e] = narrow<T>(sum / static_cast<Sum>(s.window_rows * s.window_cols));
    }
  });
}

template <typename T, bool kMax>
__global__ void __launch_bounds__(kImageThreads, kImageBlocks)
    pool_windows_back(WindowedImages s, const T* dy, const T* x, T* dx, int64_t elements) {
  using Sum = SumOf<T>;
  for_each_own(elements, [&](int64_t e) {
    const int64_t place = e % (s.rows * s.cols), plane = e / (s.rows * s.cols);
    const T* gradients = dy + plane * s.out_rows * s.out_cols;
    Sum sum = 0;
    s.for_each_window_of_row(place / s.cols, [&](int64_t out_row, int64_t) {
      s.for_each_window_of_col(place % s.cols, [&](int64_t out_col, int64_t) {
        const Sum gradient = widen(gradients[out_row * s.out_cols + out_col]);
        if constexpr (kMax) {
          if (place_of_maximum(s, x + plane * s.rows * s.cols, out_row, out_col) == place) sum += gradient;
        } else {
          sum += gradient / static_cast<Sum>(s.window_rows * s.window_cols);
        }
      });
    });
    dx[e] = narrow<T>(sum);
  });
}

}  // namespace

void compute(const Pool& args, const Launch& launch) {
  if (args.y.elements() == 0) return;
  const WindowedImages sizes(args.x.shape, args.y.shape, args.window);
  dispatch_device_float(args.x.dtype, [&]<typename T>() {
    const auto kernel = args.kind == Pooling::Max ? &pool_windows<T, true> : &pool_windows<T, false>;
    TRIVET_LAUNCH(kernel, image_blocks(args.y.elements()), kImageThreads, 0, launch.stream, sizes, data_of<T>(args.x),
                  data_of<T>(args.y), args.y.elements());
  });
}

void compute(const PoolBackward& args, const Launch& launch) {
  if (args.dx.elements() == 0) return;
  const WindowedImages sizes(args.dx.shape, args.dy.shape, args.window);
  dispatch_device_float(args.dy.dtype, [&]<typename T>() {
    const auto kernel = args.kind == Pooling::Max ? &pool_windows_back<T, true> : &pool_windows_back<T, false>;
    TRIVET_LAUNCH(kernel, image_blocks(args.dx.elements()), kImageThreads, 0, launch.stream, sizes, data_of<T>(args.dy),
                  data_of<T>(args.x), data_of<T>(args.dx), args.dx.elements());
  });
}

}  // namespace trivet::kernels::cuda
