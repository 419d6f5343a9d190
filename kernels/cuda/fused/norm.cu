// LayerNorm and RmsNorm, and the gradients of their inputs. Each tensor is read once and written once.
#include "kernels/cuda/fused/dropout_mask.cuh"
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

// The sum that a norm computes as its x: out = residual + dropout(x), with the operations of DropoutAdd.
template <typename T>
struct Addition {
  const T *x, *residual;
  T* out;
  int64_t rows_of_sample;
  bool drops_packs;
  Mask<SumOf<T>> mask;

  explicit Addition(const DropoutAdd& sum, int64_t rows)
      : x(data_of<T>(sum.x)),
        residual(data_of<T>(sum.residual)),
        out(data_of<T>(sum.out)),
        rows_of_sample(sum.out.absent() ? 1 : rows / sum.x.shape[0]),
        drops_packs(mask_fits_packs<T>(sum.dropout)),
        mask(sum.dropout) {}

  bool fits_packs() const { return aligned_for_packs<kPackOf<T>>(x, residual) && drops_packs; }

  template <bool kDrops, int kGroup, int kPacks>
  __device__ __forceinline__ Row<T, 2, kGroup, kPacks> make_row(int64_t row, int cols, int lane) const {
    using Rows = Row<T, 2, kGroup, kPacks>;
    constexpr int kWidth = Rows::kWidth;
    const int64_t at = row * cols, sample = row / rows_of_sample, first = (row - sample * rows_of_sample) * cols;
    Rows streams({x + at, residual + at}, cols, lane);
    streams.replace_first(out + at, [&](int col, const auto& packs) {
      SumOf<T> values[kWidth];
#pragma unroll
      for (int i = 0; i < kWidth; ++i) values[i] = widen(packs[0][i]);
      if constexpr (kDrops) mask.template apply<kWidth>(sample, first + col, values);
      Pack<T, kWidth> sum;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum[i] = narrow<T>(widen(packs[1][i]) + values[i]);
      return sum;
    });
    return streams;
  }
};

// The terms that a norm adds before it normalizes.
enum class Adds { Nothing, Residual, ResidualAndDropout };

template <typename T, bool kCentred, Adds kAdds, int kGroup, int kPacks>
__global__ void __launch_bounds__(kRowThreads<kGroup>,
                                  row_blocks_at_a_time<T, 2, kGroup, kPacks, kAdds == Adds::ResidualAndDropout>())
    norm_rows(Forward<T> a, Addition<T> addition, int64_t rows, int cols) {
  using Sum = SumOf<T>;
  if constexpr (kAdds == Adds::ResidualAndDropout) addition.mask.begin();
  const Sum count = static_cast<Sum>(cols);
  for_each_row<kGroup>(rows, [&](int64_t row, int lane) {
    const auto x = [&] {
      if constexpr (kAdds == Adds::Nothing)
        return Row<T, 1, kGroup, kPacks>({a.x + row * cols}, cols, lane);
      else
        return addition.template make_row<kAdds == Adds::ResidualAndDropout, kGroup, kPacks>(row, cols, lane);
    }();
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
  const T* residual;
  T* dx;
};

// dx = (residual +) rstd (g - sum(g) / H - n sum(g n) / H) with g = dy gain and n the normalized row. RmsNorm has mean 0 and no
// middle term.
template <typename T, bool kCentred, bool kResidual, int kGroup, int kPacks>
__global__ void __launch_bounds__(kRowThreads<kGroup>, row_blocks_at_a_time<T, kResidual ? 3 : 2, kGroup, kPacks>())
    norm_backward_rows(Backward<T> a, int64_t rows, int cols) {
  using Sum = SumOf<T>;
  using Rows = Row<T, kResidual ? 3 : 2, kGroup, kPacks>;
  constexpr int kWidth = Rows::kWidth;
  const Sum count = static_cast<Sum>(cols);
  for_each_row<kGroup>(rows, [&](int64_t row, int lane) {
    const int64_t at = row * cols;
    const Rows streams = [&] {
      if constexpr (kResidual)
        return Rows({a.dy + at, a.x + at, a.residual + at}, cols, lane);
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
        const Sum normalized = (widen(packs[1][i]) - mean) * rstd;
        const Sum gradient = rstd * (widen(packs[0][i]) * widen(gain[i]) - offset - normalized * slope);
        if constexpr (kResidual)
          dx[i] = narrow<T>(widen(packs[2][i]) + gradient);
        else
          dx[i] = narrow<T>(gradient);
      }
      store_pack(a.dx + at + col, dx);
    });
  });
}

template <bool kCentred>
void forward(const LayerNorm& norm, const Launch& launch);

// Computes the sum in a pass of its own. The order of additions within a row depends on how the row is read, and the bits of
// the norm must not depend on the alignment of the addends.
template <bool kCentred>
void forward_in_two_passes(const LayerNorm& norm, const Launch& launch) {
  compute(norm.sum, launch);
  LayerNorm of_sum = norm;
  of_sum.sum = {};
  forward<kCentred>(of_sum, launch);
}

// For RmsNorm, bias and mean are absent.
template <bool kCentred>
void forward(const LayerNorm& norm, const Launch& launch) {
  const ConstTensorView& x = norm.x;
  if (x.elements() == 0) return;
  dispatch_device_float(x.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<T>;
    const int64_t rows = x.shape.rows(), cols = x.shape.cols();
    const Forward<T> args{data_of<T>(x),      data_of<T>(norm.gain),        data_of<T>(norm.bias),
                          data_of<T>(norm.y), data_of<SumOf<T>>(norm.mean), data_of<SumOf<T>>(norm.rstd),
                          norm.epsilon};
    const Addition<T> addition(norm.sum, rows);
    const bool adds = addition.out != nullptr;
    const bool aligned = aligned_for_packs<kPack>(args.x, args.gain, args.bias, static_cast<const T*>(args.y));
    if (adds && aligned && !addition.fits_packs()) return forward_in_two_passes<kCentred>(norm, launch);
    dispatch_row<T>(cols, aligned, [&]<int kGroup, int kPacks>() {
      auto kernel = &norm_rows<T, kCentred, Adds::Nothing, kGroup, kPacks>;
      // A row that is not kept is read again by each pass: computing the sum in one of them would save little and cost
      // registers.
      if constexpr (kPacks > 0) {
        if (adds && norm.sum.dropout.rate == 0)
          kernel = &norm_rows<T, kCentred, Adds::Residual, kGroup, kPacks>;
        else if (adds)
          kernel = &norm_rows<T, kCentred, Adds::ResidualAndDropout, kGroup, kPacks>;
      } else if (adds) {
        return forward_in_two_passes<kCentred>(norm, launch);
      }
      TRIVET_LAUNCH(kernel, row_blocks<kGroup>(rows, launch), kRowThreads<kGroup>, 0, launch.stream, args, addition, rows,
                    static_cast<int>(cols));
    });
  });
}

template <bool kCentred>
void backward_input(const LayerNormBackwardInput& norm, const Launch& launch) {
  const ConstTensorView& x = norm.x;
  if (x.elements() == 0) return;
  dispatch_device_float(x.dtype, [&]<typename T>() {
    const Backward<T> args{data_of<T>(norm.dy),          data_of<T>(x),
                           data_of<T>(norm.gain),        data_of<SumOf<T>>(norm.mean),
                           data_of<SumOf<T>>(norm.rstd), data_of<T>(norm.residual),
                           data_of<T>(norm.dx)};
    const bool aligned =
        aligned_for_packs<kPackOf<T>>(args.dy, args.x, args.gain, args.residual, static_cast<const T*>(args.dx));
    dispatch_row<T>(x.shape.cols(), aligned, [&]<int kGroup, int kPacks>() {
      const auto kernel = args.residual == nullptr ? &norm_backward_rows<T, kCentred, false, kGroup, kPacks>
                                                   : &norm_backward_rows<T, kCentred, true, kGroup, kPacks>;
      TRIVET_LAUNCH(kernel, row_blocks<kGroup>(x.shape.rows(), launch), kRowThreads<kGroup>, 0, launch.stream, args,
                    x.shape.rows(), static_cast<int>(x.shape.cols()));
    });
  });
}

}  // namespace

void compute(const LayerNorm& args, const Launch& launch) { forward<true>(args, launch); }

void compute(const RmsNorm& args, const Launch& launch) {
  forward<false>({.x = args.x, .gain = args.gain, .y = args.y, .rstd = args.rstd, .epsilon = args.epsilon, .sum = args.sum},
                 launch);
}

void compute(const LayerNormBackwardInput& args, const Launch& launch) { backward_input<true>(args, launch); }

void compute(const RmsNormBackwardInput& args, const Launch& launch) {
  backward_input<false>(
      {.dy = args.dy, .x = args.x, .gain = args.gain, .rstd = args.rstd, .dx = args.dx, .residual = args.residual}, launch);
}

}  // namespace trivet::kernels::cuda
