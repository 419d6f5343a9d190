// Optimizer steps: one pass over all tensors, a chunk at a time. The loops work only on float32: a 16-bit gradient is widened,
// and a 16-bit copy is written, while the chunk is in the first-level cache.
#include "kernels/cpu/fused/ranges.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"
#include "kernels/optimizer_scalars.h"
#include "kernels/verdict.h"

#define TRIVET_LOOPS "kernels/cpu/fused/optimizer_loops.inl"
#include "kernels/cpu/for_each_isa.inl"

namespace trivet::kernels::cpu {
namespace {

inline constexpr int64_t kChunk = 1024;

bool applies(ConstTensorView verdict) { return verdict.absent() || verdict.as<double>()[kApply] != 0; }

template <typename Args>
auto scalars_of(const Args& args) {
  const double factor = args.verdict.absent() ? 1.0 : args.verdict.template as<double>()[kFactor];
  return scalars(numbers(args), factor, [](const Number& number) { return number.value(); });
}

const float* as_float(ConstTensorView x, int64_t first, int64_t count, float* buffer) {
  if (x.dtype == DType::Float32) return x.as<float>() + first;
  dispatch_float(x.dtype, [&]<typename T>() {
    by_isa(&baseline::convert<T, float>, &v3::convert<T, float>, &v4::convert<T, float>)(x.as<T>() + first, buffer, count);
  });
  return buffer;
}

void round_to(TensorView out, int64_t first, int64_t count, const float* from) {
  if (out.absent()) return;
  dispatch_float(out.dtype, [&]<typename T>() {
    by_isa(&baseline::convert<float, T>, &v3::convert<float, T>, &v4::convert<float, T>)(from, out.as<T>() + first, count);
  });
}

// body(first, count, gradient) gets elements [first, first + count) and their gradient in float32.
template <typename Body>
void for_each_chunk(ConstTensorView gradient, int threads, const Body& body) {
  for_each_element_range(gradient.elements(), threads, [&](int64_t begin, int64_t end) {
    alignas(64) float buffer[kChunk];
    for (int64_t first = begin; first < end; first += kChunk) {
      const int64_t count = std::min(kChunk, end - first);
      body(first, count, as_float(gradient, first, count, buffer));
    }
  });
}

}  // namespace

void compute(const SumLosses& args, int) {
  const double* losses = args.losses.as<double>();
  int64_t* words = args.words.as<int64_t>();
  const int64_t of_one = args.losses.shape.cols(), microbatches = args.losses.shape.rows();
  const auto add_column = [&](int64_t column, int64_t* to) {
    ExactSum sum;
    for (int64_t m = 0; m < microbatches; ++m) sum.add(losses[of_one * m + column]);
    for (int word = 0; word < ExactSum::kWords; ++word) to[word] += sum.words()[word];
  };
  add_column(0, words);
  for (int64_t m = 0; m < microbatches; ++m)
    for (int64_t i = 0; i < kLossCounts; ++i) words[ExactSum::kWords + i] += static_cast<int64_t>(losses[of_one * m + 1 + i]);
  for (int64_t i = 0; i < args.further(); ++i) add_column(1 + kLossCounts + i, words + SumLosses::loss_words(i));
}

void compute(const JudgeGradients& args, int) {
  judge(args.square_sum.as<int64_t>(), args.losses.as<int64_t>(), {args.unit, args.clipping, args.check_finite},
        args.verdict.as<double>());
}

namespace {

void update_one(const Adam& args, int threads) {
  if (!applies(args.verdict)) return;
  const AdamScalars s = scalars_of(args);
  const auto loop = by_isa(&baseline::adam, &v3::adam, &v4::adam);
  float *master = args.master.as<float>(), *m = args.moment1.as<float>(), *v = args.moment2.as<float>();
  for_each_chunk(args.gradient, threads, [&](int64_t first, int64_t count, const float* gradient) {
    loop(s, gradient, master + first, m + first, v + first, count);
    round_to(args.copy_out, first, count, master + first);
  });
}

}  // namespace

void compute(const AdamUpdates& args, int threads) {
  for (const Adam& update : args.updates) update_one(update, threads);
}

void compute(const Sgd& args, int threads) {
  if (!applies(args.verdict)) return;
  const SgdScalars s = scalars_of(args);
  const auto plain = by_isa(&baseline::sgd, &v3::sgd, &v4::sgd);
  const auto with_momentum = by_isa(&baseline::sgd_momentum, &v3::sgd_momentum, &v4::sgd_momentum);
  float* master = args.master.as<float>();
  float* buffer = args.momentum_buffer.absent() ? nullptr : args.momentum_buffer.as<float>();
  for_each_chunk(args.gradient, threads, [&](int64_t first, int64_t count, const float* gradient) {
    if (buffer)
      with_momentum(s, gradient, master + first, buffer + first, count);
    else
      plain(s, gradient, master + first, count);
    round_to(args.copy_out, first, count, master + first);
  });
}

void compute(const Lion& args, int threads) {
  if (!applies(args.verdict)) return;
  const LionScalars s = scalars_of(args);
  const auto loop = by_isa(&baseline::lion, &v3::lion, &v4::lion);
  float *master = args.master.as<float>(), *moment = args.moment.as<float>();
  for_each_chunk(args.gradient, threads, [&](int64_t first, int64_t count, const float* gradient) {
    loop(s, gradient, master + first, moment + first, count);
    round_to(args.copy_out, first, count, master + first);
  });
}

void compute(const Adagrad& args, int threads) {
  if (!applies(args.verdict)) return;
  const AdagradScalars s = scalars_of(args);
  const auto loop = by_isa(&baseline::adagrad, &v3::adagrad, &v4::adagrad);
  float *master = args.master.as<float>(), *sum = args.sum_of_squares.as<float>();
  for_each_chunk(args.gradient, threads, [&](int64_t first, int64_t count, const float* gradient) {
    loop(s, gradient, master + first, sum + first, count);
    round_to(args.copy_out, first, count, master + first);
  });
}

void compute(const LambUpdate& args, int threads) {
  if (!applies(args.verdict)) return;
  const AdamScalars s = scalars_of(args);
  const auto loop = by_isa(&baseline::lamb, &v3::lamb, &v4::lamb);
  const float* master = args.master.as<float>();
  float *m = args.moment1.as<float>(), *v = args.moment2.as<float>(), *update = args.update.as<float>();
  for_each_chunk(args.gradient, threads, [&](int64_t first, int64_t count, const float* gradient) {
    loop(s, gradient, master + first, m + first, v + first, update + first, count);
  });
}

void compute(const ApplyUpdate& args, int threads) {
  if (!applies(args.verdict)) return;
  const auto loop = by_isa(&baseline::apply, &v3::apply, &v4::apply);
  const double ratio =
      args.square_sums.absent() ? 1.0 : trust_ratio(args.square_sums.as<int64_t>(), args.min_ratio, args.max_ratio);
  const ApplyScalars s = scalars(numbers(args), ratio, [](const Number& number) { return number.value(); });
  float* master = args.master.as<float>();
  for_each_chunk(args.update, threads, [&](int64_t first, int64_t count, const float* update) {
    loop(s.keep, s.factor, update, master + first, count);
    round_to(args.copy_out, first, count, master + first);
  });
}

void compute(const MomentumUpdate& args, int threads) {
  if (!applies(args.verdict)) return;
  const auto loop = by_isa(&baseline::momentum, &v3::momentum, &v4::momentum);
  const MomentumScalars s = scalars_of(args);
  float *buffer = args.momentum_buffer.as<float>(), *out = args.out.as<float>();
  for_each_chunk(args.gradient, threads, [&](int64_t first, int64_t count, const float* gradient) {
    loop(s, gradient, buffer + first, out + first, count);
  });
}

void compute(const RunningAverage& args, int threads) {
  if (!applies(args.verdict)) return;
  const auto loop = by_isa(&baseline::apply, &v3::apply, &v4::apply);
  const ApplyScalars s = scalars(numbers(args), 1, [](const Number& number) { return number.value(); });
  float* master = args.master.as<float>();
  for_each_chunk(args.gradient, threads, [&](int64_t first, int64_t count, const float* gradient) {
    loop(s.keep, s.factor, gradient, master + first, count);
    round_to(args.copy_out, first, count, master + first);
  });
}

}  // namespace trivet::kernels::cpu
