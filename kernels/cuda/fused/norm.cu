// LayerNorm and RmsNorm, and what their backward says of their inputs. Each tensor is read once.
#include "kernels/cuda/fused/rows.cuh"

namespace trivet::kernels::cuda {
namespace {

template <typename T>
struct Forward {
  const T *x, *gain, *bias;  // RmsNorm has no bias and no mean
  T* y;
  SumOf<T>*mean, *rstd;
  float epsilon;
};

template <typename T, bool kCentred, int kGroup, int kPacks>
__global__ void __launch_bounds__(kRowThreads<kGroup>) norm_rows(Forward<T> a, int64_t rows, int cols) {
  using Sum = SumOf<T>;
  const Sum count = static_cast<Sum>(cols);
  for_each_row<kGroup>(rows, [&](int64_t row, int lane) {
    const Row<T, 1, kGroup, kPacks> x({a.x + row * cols}, cols, lane);
    const auto mean_of = [&](const auto& term) {
      Sum sum = 0;
      x.for_each([&](int, const auto& packs) {
#pragma unroll
        for (const T& value : packs[0].values) sum += term(widen(value));
      });
      return join_group<kGroup>(sum, Plus()) / count;
    };
    const Sum mean = kCentred ? mean_of([](Sum value) { return value; }) : Sum(0);
    const Sum variance = mean_of([mean](Sum value) { return (value - mean) * (value - mean); });
    const Sum rstd = Sum(1) / square_root(variance + static_cast<Sum>(a.epsilon));
    x.for_each([&](int col, const auto& packs) {
      constexpr int kWidth = Row<T, 1, kGroup, kPacks>::kWidth;
      const Pack<T, kWidth> gain = load_pack<kWidth>(a.gain + col);
      [[maybe_unused]] Pack<T, kWidth> bias;
      Pack<T, kWidth> y;
      if constexpr (kCentred) bias = load_pack<kWidth>(a.bias + col);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const Sum scaled = (widen(packs[0][i]) - mean) * rstd * widen(gain[i]);
        if constexpr (kCentred)
          y[i] = narrow<T>(scaled + widen(bias[i]));
        else
          y[i] = narrow<T>(scaled);
      }
      store_pack(a.y + row * cols + col, y);
    });
    if (lane != 0) return;
    if constexpr (kCentred) a.mean[row] = mean;
    a.rstd[row] = rstd;
  });
}

template <typename T>
struct Backward {
  const T *dy, *x, *gain;
  const SumOf<T>*mean, *rstd;
  T* dx;
};

// dx (+)= rstd (g - sum(g) / H - n sum(g n) / H) with g = dy gain and n the normalised row. RmsNorm has mean 0 and no middle
// term.
template <typename T, bool kCentred, bool kAccumulate, int kGroup, int kPacks>
__global__ void __launch_bounds__(kRowThreads<kGroup>) norm_backward_rows(Backward<T> a, int64_t rows, int cols) {
  using Sum = SumOf<T>;
  using Rows = Row<T, kAccumulate ? 3 : 2, kGroup, kPacks>;
  constexpr int kWidth = Rows::kWidth;
  const Sum count = static_cast<Sum>(cols);
  for_each_row<kGroup>(rows, [&](int64_t row, int lane) {
    const int64_t at = row * cols;
    const Rows streams = [&] {
      if constexpr (kAccumulate)
        return Rows({a.dy + at, a.x + at, a.dx + at}, cols, lane);
      else
        return Rows({a.dy + at, a.x + at}, cols, lane);
    }();
    const Sum mean = kCentred ? a.mean[row] : Sum(0), rstd = a.rstd[row];
    Sum offset = 0, slope = 0;
    streams.for_each([&](int col, const auto& packs) {
      const Pack<T, kWidth> gain = load_pack<kWidth>(a.gain + col);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const Sum g = widen(packs[0][i]) * widen(gain[i]);
        offset += g;
        slope += g * ((widen(packs[1][i]) - mean) * rstd);
      }
    });
    offset = kCentred ? join_group<kGroup>(offset, Plus()) / count : Sum(0);
    slope = join_group<kGroup>(slope, Plus()) / count;
    streams.for_each([&](int col, const auto& packs) {
      const Pack<T, kWidth> gain = load_pack<kWidth>(a.gain + col);
      Pack<T, kWidth> dx;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const Sum normalised = (widen(packs[1][i]) - mean) * rstd;
        const Sum gradient = rstd * (widen(packs[0][i]) * widen(gain[i]) - offset - normalised * slope);
        if constexpr (kAccumulate)
          dx[i] = narrow<T>(widen(packs[2][i]) + gradient);
        else
          dx[i] = narrow<T>(gradient);
      }
      store_pack(a.dx + at + col, dx);
    });
  });
}

template <bool kCentred>
void forward(ConstTensorView x, ConstTensorView gain, ConstTensorView bias, TensorView y, TensorView mean, TensorView rstd,
             float epsilon, const Launch& launch) {
  if (x.elements() == 0) return;
  dispatch_device_float(x.dtype, [&]<typename T>() {
    const Forward<T> args{data_of<T>(x),           data_of<T>(gain),        data_of<T>(bias), data_of<T>(y),
                          data_of<SumOf<T>>(mean), data_of<SumOf<T>>(rstd), epsilon};
    const bool aligned = aligned_for_packs<kPackOf<T>>(args.x, args.gain, args.bias, static_cast<const T*>(args.y));
    dispatch_row<T>(x.shape.cols(), aligned, [&]<int kGroup, int kPacks>() {
      TRIVET_LAUNCH((norm_rows<T, kCentred, kGroup, kPacks>), row_blocks<kGroup>(x.shape.rows(), launch), kRowThreads<kGroup>,
                    0, launch.stream, args, x.shape.rows(), static_cast<int>(x.shape.cols()));
    });
  });
}

template <bool kCentred>
void backward_input(ConstTensorView dy, ConstTensorView x, ConstTensorView gain, ConstTensorView mean, ConstTensorView rstd,
                    TensorView dx, bool accumulate, const Launch& launch) {
  if (x.elements() == 0) return;
  dispatch_device_float(x.dtype, [&]<typename T>() {
    const Backward<T> args{data_of<T>(dy),          data_of<T>(x),           data_of<T>(gain),
                           data_of<SumOf<T>>(mean), data_of<SumOf<T>>(rstd), data_of<T>(dx)};
    const bool aligned = aligned_for_packs<kPackOf<T>>(args.dy, args.x, args.gain, static_cast<const T*>(args.dx));
    dispatch_row<T>(x.shape.cols(), aligned, [&]<int kGroup, int kPacks>() {
      const auto kernel = accumulate ? &norm_backward_rows<T, kCentred, true, kGroup, kPacks>
                                     : &norm_backward_rows<T, kCentred, false, kGroup, kPacks>;
      TRIVET_LAUNCH(kernel, row_blocks<kGroup>(x.shape.rows(), launch), kRowThreads<kGroup>, 0, launch.stream, args,
                    x.shape.rows(), static_cast<int>(x.shape.cols()));
    });
  });
}

}  // namespace

void layer_norm(const LayerNorm& args, const Launch& launch) {
  forward<true>(args.x, args.gain, args.bias, args.y, args.mean, args.rstd, args.epsilon, launch);
}

void rms_norm(const RmsNorm& args, const Launch& launch) {
  forward<false>(args.x, args.gain, {}, args.y, {}, args.rstd, args.epsilon, launch);
}

void layer_norm_backward_input(const LayerNormBackwardInput& args, const Launch& launch) {
  backward_input<true>(args.dy, args.x, args.gain, args.mean, args.rstd, args.dx, args.accumulate, launch);
}

void rms_norm_backward_input(const RmsNormBackwardInput& args, const Launch& launch) {
  backward_input<false>(args.dy, args.x, args.gain, {}, args.rstd, args.dx, args.accumulate, launch);
}

}  // namespace trivet::kernels::cuda
