// Pooling. Each plane (one channel of one image) is done by one thread.
#include <algorithm>
#include <vector>

#include "kernels/convolution.h"
#include "kernels/cpu/fused/ranges.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"

namespace trivet::kernels::cpu {
namespace {

// The part of a window that lies inside of the image.
struct PixelRange {
  int64_t row, row_end, col, col_end;

  PixelRange(const Window& window, int64_t rows, int64_t cols, int64_t out_row, int64_t out_col) {
    const int64_t top = out_row * window.stride - window.padding, left = out_col * window.stride - window.padding;
    row = std::max<int64_t>(top, 0), row_end = std::min(rows, top + window.rows);
    col = std::max<int64_t>(left, 0), col_end = std::min(cols, left + window.cols);
  }
};

// Where the largest pixel of the window is; a NaN counts as the largest.
template <typename T>
int64_t place_of_maximum(const T* plane, int64_t cols, const PixelRange& in) {
  using Sum = SumOf<T>;
  int64_t place = in.row * cols + in.col;
  for (int64_t row = in.row; row < in.row_end; ++row)
    for (int64_t at = row * cols + in.col; at < row * cols + in.col_end; ++at) {
      const Sum value = widen<Sum>(plane[at]), largest = widen<Sum>(plane[place]);
      if (value > largest || (value != value && largest == largest)) place = at;
    }
  return place;
}

template <typename T>
T average(const T* plane, int64_t cols, const PixelRange& in, const Window& window) {
  using Sum = SumOf<T>;
  Sum sum{0};
  for (int64_t row = in.row; row < in.row_end; ++row)
    for (int64_t at = row * cols + in.col; at < row * cols + in.col_end; ++at) sum += widen<Sum>(plane[at]);
  return narrow<T>(sum / static_cast<Sum>(window.pixels()));
}

// Calls body(output pixel of the plane, the window's pixels) for all windows of a plane.
template <typename Body>
void for_each_window(const Window& window, const Shape& x, const Shape& y, const Body& body) {
  for (int64_t row = 0; row < y[2]; ++row)
    for (int64_t col = 0; col < y[3]; ++col) body(row * y[3] + col, PixelRange(window, x[2], x[3], row, col));
}

template <typename T>
void pool(const Pool& args, int threads) {
  const Shape &x = args.x.shape, &y = args.y.shape;
  const int64_t pixels = x[2] * x[3], out_pixels = y[2] * y[3];
  for_each_range(x[0] * x[1], threads, 1, out_pixels * args.window.pixels(), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const T* from = args.x.as<T>() + plane * pixels;
      T* to = args.y.as<T>() + plane * out_pixels;
      for_each_window(args.window, x, y, [&](int64_t out, const PixelRange& in) {
        to[out] = args.kind == Pooling::Max ? from[place_of_maximum(from, x[3], in)] : average(from, x[3], in, args.window);
      });
    }
  });
}

// Windows may overlap, so a plane's gradient is summed in `sum` before it is rounded.
template <typename T>
void plane_gradient(const PoolBackward& args, int64_t plane, std::vector<SumOf<T>>& sum) {
  using Sum = SumOf<T>;
  const Shape &x = args.dx.shape, &y = args.dy.shape;
  const int64_t pixels = x[2] * x[3];
  const T* dy = args.dy.as<T>() + plane * y[2] * y[3];
  std::ranges::fill(sum, Sum{0});
  for_each_window(args.window, x, y, [&](int64_t out, const PixelRange& in) {
    const Sum gradient = widen<Sum>(dy[out]);
    if (args.kind == Pooling::Max) {
      sum[place_of_maximum(args.x.as<T>() + plane * pixels, x[3], in)] += gradient;
      return;
    }
    const Sum share = gradient / static_cast<Sum>(args.window.pixels());
    for (int64_t row = in.row; row < in.row_end; ++row)
      for (int64_t col = in.col; col < in.col_end; ++col) sum[row * x[3] + col] += share;
  });
  std::ranges::transform(sum, args.dx.as<T>() + plane * pixels, [](Sum value) { return narrow<T>(value); });
}

template <typename T>
void pool_backward(const PoolBackward& args, int threads) {
  const Shape& x = args.dx.shape;
  for_each_range(x[0] * x[1], threads, 1, args.dy.shape[2] * args.dy.shape[3] * args.window.pixels(),
                 [&](int64_t begin, int64_t end) {
                   std::vector<SumOf<T>> sum(x[2] * x[3]);
                   for (int64_t plane = begin; plane < end; ++plane) plane_gradient<T>(args, plane, sum);
                 });
}

}  // namespace

void compute(const Pool& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() { pool<T>(args, threads); });
}

void compute(const PoolBackward& args, int threads) {
  dispatch_float(args.dy.dtype, [&]<typename T>() { pool_backward<T>(args, threads); });
}

}  // namespace trivet::kernels::cpu
