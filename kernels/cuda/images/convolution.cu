// Convolutions by their definition: a thread computes one element of y or dx, and a block one element of the weight's or of the
// bias's gradient. Sums are in an order that depends only on shapes.
#include "kernels/cuda/images/planes.cuh"

namespace trivet::kernels::cuda {
namespace {

template <typename T>
__global__ void __launch_bounds__(kImageThreads, kImageBlocks)
    convolve(WindowedImages s, const T* x, const T* weight, const T* bias, T* y, int64_t elements) {
  using Sum = SumOf<T>;
  for_each_own(elements, [&](int64_t e) {
    const int64_t col = e % s.out_cols, row = e / s.out_cols % s.out_rows;
    const int64_t out = e / (s.out_cols * s.out_rows) % s.out_channels, image = e / (s.out_cols * s.out_rows * s.out_channels);
    Sum sum = bias == nullptr ? Sum(0) : Sum(widen(bias[out]));
    for (int64_t channel = 0; channel < s.channels; ++channel) {
      const T* plane = x + (image * s.channels + channel) * s.rows * s.cols;
      const T* factors = weight + (out * s.channels + channel) * s.window_rows * s.window_cols;
      s.for_each_row(row, [&](int64_t at_row, int64_t i) {
        s.for_each_col(col, [&](int64_t at_col, int64_t j) {
          sum += widen(factors[i * s.window_cols + j]) * widen(plane[at_row * s.cols + at_col]);
        });
      });
    }
    y[e] = narrow<T>(sum);
  });
}

template <typename T>
__global__ void __launch_bounds__(kImageThreads, kImageBlocks)
    convolve_back(WindowedImages s, const T* dy, const T* weight, T* dx, int64_t elements) {
  using Sum = SumOf<T>;
  for_each_own(elements, [&](int64_t e) {
    const int64_t col = e % s.cols, row = e / s.cols % s.rows;
    const int64_t channel = e / (s.cols * s.rows) % s.channels, image = e / (s.cols * s.rows * s.channels);
    Sum sum = 0;
    for (int64_t out = 0; out < s.out_channels; ++out) {
      const T* plane = dy + (image * s.out_channels + out) * s.out_rows * s.out_cols;
      const T* factors = weight + (out * s.channels + channel) * s.window_rows * s.window_cols;
      s.for_each_window_of_row(row, [&](int64_t out_row, int64_t i) {
        s.for_each_window_of_col(col, [&](int64_t out_col, int64_t j) {
          sum += widen(factors[i * s.window_cols + j]) * widen(plane[out_row * s.out_cols + out_col]);
        });
      });
    }
    dx[e] = narrow<T>(sum);
  });
}

// Thread 0 of a block stores the sum of the block's threads.
template <typename Sum, typename G>
__device__ void store_sum(Sum own, G* out, bool accumulate) {
  const Sum sum = join_group<kImageThreads>(own, Plus());
  if (threadIdx.x == 0) *out = narrow<G>(accumulate ? static_cast<Sum>(widen(*out)) + sum : sum);
}

// One block for each element of dweight.
template <typename T, typename G>
__global__ void __launch_bounds__(kImageThreads, kImageBlocks)
    sum_weight_gradient(WindowedImages s, const T* dy, const T* x, G* dweight, int64_t weights, bool accumulate) {
  using Sum = SumOf<T>;
  const int64_t out_pixels = s.out_rows * s.out_cols;
  for (int64_t e = blockIdx.x; e < weights; e += gridDim.x) {
    const int64_t j = e % s.window_cols, i = e / s.window_cols % s.window_rows;
    const int64_t channel = e / (s.window_cols * s.window_rows) % s.channels;
    const int64_t out = e / (s.window_cols * s.window_rows * s.channels);
    Sum sum = 0;
    for (int64_t at = threadIdx.x; at < s.images * out_pixels; at += kImageThreads) {
      const int64_t image = at / out_pixels, pixel = at % out_pixels;
      const int64_t row = pixel / s.out_cols * s.stride + i - s.padding, col = pixel % s.out_cols * s.stride + j - s.padding;
      if (row < 0 || row >= s.rows || col < 0 || col >= s.cols) continue;
      sum += widen(dy[(image * s.out_channels + out) * out_pixels + pixel]) *
             widen(x[((image * s.channels + channel) * s.rows + row) * s.cols + col]);
    }
    store_sum(sum, dweight + e, accumulate);
  }
}

// One block for each output channel.
template <typename T, typename G>
__global__ void __launch_bounds__(kImageThreads, kImageBlocks)
    sum_bias_gradient(WindowedImages s, const T* dy, G* dbias, bool accumulate) {
  using Sum = SumOf<T>;
  const int64_t out_pixels = s.out_rows * s.out_cols;
  for (int64_t out = blockIdx.x; out < s.out_channels; out += gridDim.x) {
    Sum sum = 0;
    for (int64_t at = threadIdx.x; at < s.images * out_pixels; at += kImageThreads)
      sum += widen(dy[(at / out_pixels * s.out_channels + out) * out_pixels + at % out_pixels]);
    store_sum(sum, dbias + out, accumulate);
  }
}

}  // namespace

void compute(const Convolution& args, const Launch& launch) {
  if (args.y.elements() == 0) return;
  const WindowedImages sizes(args.x.shape, args.y.shape, args.window);
  dispatch_device_float(args.x.dtype, [&]<typename T>() {
    TRIVET_LAUNCH(&convolve<T>, image_blocks(args.y.elements()), kImageThreads, 0, launch.stream, sizes, data_of<T>(args.x),
                  data_of<T>(args.weight), data_of<T>(args.bias), data_of<T>(args.y), args.y.elements());
  });
}

void compute(const ConvolutionBackwardInput& args, const Launch& launch) {
  if (args.dx.elements() == 0) return;
  const WindowedImages sizes(args.dx.shape, args.dy.shape, args.window);
  dispatch_device_float(args.dy.dtype, [&]<typename T>() {
    TRIVET_LAUNCH(&convolve_back<T>, image_blocks(args.dx.elements()), kImageThreads, 0, launch.stream, sizes,
                  data_of<T>(args.dy), data_of<T>(args.weight), data_of<T>(args.dx), args.dx.elements());
  });
}

void compute(const ConvolutionBackwardWeight& args, const Launch& launch) {
  constexpr int64_t kMostBlocks = 1 << 16;
  const WindowedImages sizes(args.x.shape, args.dy.shape, args.window);
  const auto blocks = [&](int64_t outputs) { return static_cast<unsigned>(std::min(outputs, kMostBlocks)); };
  if (const int64_t weights = args.dweight.elements(); !args.dweight.absent() && weights > 0)
    dispatch_gradient(args.dy.dtype, args.dweight.dtype, [&]<typename T, typename G>() {
      TRIVET_LAUNCH((sum_weight_gradient<T, G>), blocks(weights), kImageThreads, 0, launch.stream, sizes, data_of<T>(args.dy),
                    data_of<T>(args.x), data_of<G>(args.dweight), weights, args.accumulate_weight);
    });
  if (!args.dbias.absent() && args.dbias.elements() > 0)
    dispatch_gradient(args.dy.dtype, args.dbias.dtype, [&]<typename T, typename G>() {
      TRIVET_LAUNCH((sum_bias_gradient<T, G>), blocks(sizes.out_channels), kImageThreads, 0, launch.stream, sizes,
                    data_of<T>(args.dy), data_of<G>(args.dbias), args.accumulate_bias);
    });
}

}  // namespace trivet::kernels::cuda
