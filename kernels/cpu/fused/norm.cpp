#include <algorithm>

#include "kernels/cpu/fused/column_sums.h"
#include "kernels/cpu/fused/gradient_types.h"
#include "kernels/cpu/fused/ranges.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"

#define TRIVET_LOOPS "kernels/cpu/fused/norm_loops.inl"
#include "kernels/cpu/for_each_isa.inl"

namespace trivet::kernels::cpu {
namespace {

template <typename T, typename Body>
void for_each_row(const ConstTensorView& x, int threads, const Body& body) {
  for_each_range(x.shape.rows(), threads, 1, x.shape.cols(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row, row * x.shape.cols());
  });
}

// Computes elements [begin, end) of the sum, if the norm has one, just before the norm reads them.
void make_sum(const DropoutAdd& sum, int64_t begin, int64_t end) {
  if (!sum.out.absent()) add_dropped_elements(sum, begin, end);
}

// For RmsNorm, `mean` is absent and `centred` is false.
template <typename T, bool kResidual>
void norm_backward_input(ConstTensorView dy, ConstTensorView x, ConstTensorView gain, ConstTensorView mean,
                         ConstTensorView rstd, TensorView dx, ConstTensorView residual, bool centred, int threads) {
  using Sum = SumOf<T>;
  const auto loop = centred ? by_isa(&baseline::norm_backward_row<T, true, kResidual>,
                                     &v3::norm_backward_row<T, true, kResidual>, &v4::norm_backward_row<T, true, kResidual>)
                            : by_isa(&baseline::norm_backward_row<T, false, kResidual>,
                                     &v3::norm_backward_row<T, false, kResidual>, &v4::norm_backward_row<T, false, kResidual>);
  for_each_row<T>(x, threads, [&](int64_t row, int64_t at) {
    loop(dy.as<T>() + at, x.as<T>() + at, gain.as<T>(), centred ? mean.as<Sum>()[row] : Sum{0}, rstd.as<Sum>()[row],
         kResidual ? residual.as<T>() + at : nullptr, dx.as<T>() + at, x.shape.cols());
  });
}

template <typename Sum, typename G>
auto store_to(TensorView out, bool accumulate) {
  const auto store = by_isa(&baseline::store_sums<Sum, G>, &v3::store_sums<Sum, G>, &v4::store_sums<Sum, G>);
  G* data = out.as<G>();
  return [=](int64_t col, int64_t cols, const Sum* total) { store(total, data + col, cols, accumulate); };
}

template <typename Sum>
auto partial_adder() {
  return by_isa(&baseline::add_partial<Sum>, &v3::add_partial<Sum>, &v4::add_partial<Sum>);
}

void gain_gradient(ConstTensorView dy, ConstTensorView x, ConstTensorView mean, ConstTensorView rstd, TensorView dgain,
                   bool centred, bool accumulate, int threads) {
  if (dgain.absent()) return;
  dispatch_gradient(dy.dtype, dgain.dtype, [&]<typename T, typename G>() {
    using Sum = SumOf<T>;
    const auto loop =
        by_isa(&baseline::add_rows_times_normalized<T>, &v3::add_rows_times_normalized<T>, &v4::add_rows_times_normalized<T>);
    const int64_t stride = dy.shape.cols();
    const auto add_chunk = [&](int64_t row, int64_t rows, int64_t col, int64_t cols, Sum* sums) {
      const int64_t at = row * stride + col;
      loop(dy.as<T>() + at, x.as<T>() + at, centred ? mean.as<Sum>() + row : nullptr, rstd.as<Sum>() + row, 1, rows, stride,
           sums, cols);
    };
    sum_columns<Sum>(dy.shape.rows(), stride, threads, add_chunk, partial_adder<Sum>(), store_to<Sum, G>(dgain, accumulate));
  });
}

// Calls body(head, first element of the head in qkv, place of its rstd) for the heads of each token that are normalized, and
// copy(first element of the values) once.
template <typename Args, typename Body, typename Copy>
void for_each_head(const Args& args, int threads, const Body& body, const Copy& copy) {
  const int64_t width = args.qkv.shape[2], size = args.head_size(), normalized = args.heads + args.key_value_heads;
  for_each_range(args.qkv.shape.rows(), threads, 1, width, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      for (int64_t head = 0; head < normalized; ++head) body(head, token * width + head * size, token * normalized + head);
      copy(token * width + normalized * size);
    }
  });
}

}  // namespace

void compute(const LayerNorm& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() {
    using Sum = SumOf<T>;
    const auto loop = by_isa(&baseline::layer_norm_row<T>, &v3::layer_norm_row<T>, &v4::layer_norm_row<T>);
    for_each_row<T>(args.x, threads, [&](int64_t row, int64_t at) {
      make_sum(args.sum, at, at + args.x.shape.cols());
      loop(args.x.as<T>() + at, args.gain.as<T>(), args.bias.as<T>(), args.y.as<T>() + at, args.mean.as<Sum>() + row,
           args.rstd.as<Sum>() + row, args.epsilon, args.x.shape.cols());
    });
  });
}

void compute(const RmsNorm& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() {
    const auto loop = by_isa(&baseline::rms_norm_row<T>, &v3::rms_norm_row<T>, &v4::rms_norm_row<T>);
    for_each_row<T>(args.x, threads, [&](int64_t row, int64_t at) {
      make_sum(args.sum, at, at + args.x.shape.cols());
      loop(args.x.as<T>() + at, args.gain.as<T>(), args.y.as<T>() + at, args.rstd.as<SumOf<T>>() + row, args.epsilon,
           args.x.shape.cols());
    });
  });
}

void compute(const LayerNormBackwardInput& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() {
    const auto backward = args.residual.absent() ? &norm_backward_input<T, false> : &norm_backward_input<T, true>;
    backward(args.dy, args.x, args.gain, args.mean, args.rstd, args.dx, args.residual, true, threads);
  });
}

void compute(const RmsNormBackwardInput& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() {
    const auto backward = args.residual.absent() ? &norm_backward_input<T, false> : &norm_backward_input<T, true>;
    backward(args.dy, args.x, args.gain, {}, args.rstd, args.dx, args.residual, false, threads);
  });
}

void compute(const BiasGradient& args, int threads) {
  dispatch_gradient(args.dy.dtype, args.dbias.dtype, [&]<typename T, typename G>() {
    using Sum = SumOf<T>;
    const auto loop = by_isa(&baseline::add_rows<T>, &v3::add_rows<T>, &v4::add_rows<T>);
    const int64_t stride = args.dy.shape.cols();
    const auto add_chunk = [&](int64_t row, int64_t rows, int64_t col, int64_t cols, Sum* sums) {
      loop(args.dy.as<T>() + row * stride + col, rows, stride, sums, cols);
    };
    sum_columns<Sum>(args.dy.shape.rows(), stride, threads, add_chunk, partial_adder<Sum>(),
                     store_to<Sum, G>(args.dbias, args.accumulate));
  });
}

void compute(const LayerNormBackwardWeight& args, int threads) {
  gain_gradient(args.dy, args.x, args.mean, args.rstd, args.dgain, true, args.accumulate_gain, threads);
  if (!args.dbias.absent())
    compute(BiasGradient{.dy = args.dy, .dbias = args.dbias, .accumulate = args.accumulate_bias}, threads);
}

void compute(const RmsNormBackwardWeight& args, int threads) {
  gain_gradient(args.dy, args.x, {}, args.rstd, args.dgain, false, args.accumulate, threads);
}

void compute(const HeadNorm& args, int threads) {
  const int64_t size = args.head_size();
  dispatch_float(args.qkv.dtype, [&]<typename T>() {
    const auto loop = by_isa(&baseline::rms_norm_row<T>, &v3::rms_norm_row<T>, &v4::rms_norm_row<T>);
    const T* qkv = args.qkv.as<T>();
    T* out = args.out.as<T>();
    for_each_head(
        args, threads,
        [&](int64_t head, int64_t at, int64_t statistic) {
          loop(qkv + at, (head < args.heads ? args.query_gain : args.key_gain).as<T>(), out + at,
               args.rstd.as<SumOf<T>>() + statistic, args.epsilon, size);
        },
        [&](int64_t at) { std::copy_n(qkv + at, args.key_value_heads * size, out + at); });
  });
}

void compute(const HeadNormBackwardInput& args, int threads) {
  const int64_t size = args.head_size();
  dispatch_float(args.qkv.dtype, [&]<typename T>() {
    using Sum = SumOf<T>;
    const auto loop = by_isa(&baseline::norm_backward_row<T, false, false>, &v3::norm_backward_row<T, false, false>,
                             &v4::norm_backward_row<T, false, false>);
    const T *dout = args.dout.as<T>(), *qkv = args.qkv.as<T>();
    T* dqkv = args.dqkv.as<T>();
    for_each_head(
        args, threads,
        [&](int64_t head, int64_t at, int64_t statistic) {
          loop(dout + at, qkv + at, (head < args.heads ? args.query_gain : args.key_gain).as<T>(), Sum{0},
               args.rstd.as<Sum>()[statistic], nullptr, dqkv + at, size);
        },
        [&](int64_t at) { std::copy_n(dout + at, args.key_value_heads * size, dqkv + at); });
  });
}

// Columns of several heads are summed head by head, because each head has statistics of its own.
void compute(const HeadNormBackwardWeight& args, int threads) {
  const int64_t width = args.qkv.shape[2], size = args.head_size(), heads = args.heads + args.key_value_heads;
  dispatch_float(args.qkv.dtype, [&]<typename T>() {
    using Sum = SumOf<T>;
    const auto loop =
        by_isa(&baseline::add_rows_times_normalized<T>, &v3::add_rows_times_normalized<T>, &v4::add_rows_times_normalized<T>);
    const auto add_chunk = [&](int64_t row, int64_t rows, int64_t col, int64_t cols, Sum* sums) {
      for (int64_t done = 0; done < cols;) {
        const int64_t head = (col + done) / size, count = std::min(cols - done, (head + 1) * size - col - done);
        const int64_t at = row * width + col + done;
        loop(args.dout.as<T>() + at, args.qkv.as<T>() + at, nullptr, args.rstd.as<Sum>() + row * heads + head, heads, rows,
             width, sums + done, count);
        done += count;
      }
    };
    sum_columns<Sum>(args.qkv.shape.rows(), heads * size, threads, add_chunk, partial_adder<Sum>(),
                     store_to<Sum, Sum>(args.dgains, false));
  });
}

}  // namespace trivet::kernels::cpu
