#include <cstring>

#include "core/fixed_point.h"
#include "kernels/cpu/fused/gradient_types.h"
#include "kernels/cpu/fused/ranges.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"

#define TRIVET_LOOPS "kernels/cpu/fused/elementwise_loops.inl"
#include "kernels/cpu/for_each_isa.inl"

namespace trivet::kernels::cpu {

static_assert(fixed_point::kFractionBits == 44, "elementwise_loops.inl is written for 44 fraction bits");

void compute(const Zero& args, int threads) {
  auto* bytes = static_cast<std::byte*>(args.out.data);
  for_each_element_range(args.out.bytes(), threads,
                         [&](int64_t begin, int64_t end) { std::memset(bytes + begin, 0, end - begin); });
}

namespace {

void copy_bytes(ConstTensorView from, TensorView out, int threads) {
  const auto* source = static_cast<const std::byte*>(from.data);
  auto* target = static_cast<std::byte*>(out.data);
  if (source == target) return;
  for_each_element_range(out.bytes(), threads,
                         [&](int64_t begin, int64_t end) { std::memcpy(target + begin, source + begin, end - begin); });
}

}  // namespace

void compute(const Copy& args, int threads) {
  if (args.from.dtype == args.out.dtype) return copy_bytes(args.from, args.out, threads);
  dispatch_float(args.from.dtype, [&]<typename From>() {
    dispatch_float(args.out.dtype, [&]<typename To>() {
      const auto loop = by_isa(&baseline::convert<From, To>, &v3::convert<From, To>, &v4::convert<From, To>);
      const From* source = args.from.as<From>();
      To* target = args.out.as<To>();
      for_each_element_range(args.out.elements(), threads,
                             [&](int64_t begin, int64_t end) { loop(source + begin, target + begin, end - begin); });
    });
  });
}

namespace {

template <typename T>
void add_with(void (*loop)(const T*, T*, int64_t), const T* from, T* out, int64_t count, int threads) {
  for_each_element_range(count, threads, [&](int64_t begin, int64_t end) { loop(from + begin, out + begin, end - begin); });
}

}  // namespace

void compute(const Add& args, int threads) {
  if (args.out.dtype == DType::Int64)
    return add_with<int64_t>(by_isa(&baseline::add_integers, &v3::add_integers, &v4::add_integers), args.from.as<int64_t>(),
                             args.out.as<int64_t>(), args.out.elements(), threads);
  dispatch_float(args.out.dtype, [&]<typename T>() {
    add_with<T>(by_isa(&baseline::add<T>, &v3::add<T>, &v4::add<T>), args.from.as<T>(), args.out.as<T>(), args.out.elements(),
                threads);
  });
}

void compute(const AddBias& args, int threads) {
  if (args.bias.absent()) return compute(Copy{args.x, args.out}, threads);
  const int64_t cols = args.out.shape.cols();
  dispatch_gradient(args.out.dtype, args.x.dtype, [&]<typename T, typename X>() {
    const auto loop = by_isa(&baseline::add_bias_row<X, T>, &v3::add_bias_row<X, T>, &v4::add_bias_row<X, T>);
    for_each_range(args.out.shape.rows(), threads, 1, cols, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        loop(args.x.as<X>() + row * cols, args.bias.as<T>(), args.out.as<T>() + row * cols, cols);
    });
  });
}

void compute(const Scale& args, int threads) {
  dispatch_float(args.out.dtype, [&]<typename T>() {
    const auto loop = by_isa(&baseline::scale<T>, &v3::scale<T>, &v4::scale<T>);
    T* data = args.out.as<T>();
    for_each_element_range(args.out.elements(), threads,
                           [&](int64_t begin, int64_t end) { loop(data + begin, args.factor, end - begin); });
  });
}

namespace {

void add_squares(const Squares& term, TensorView sum, int threads) {
  ExactSum total;
  dispatch_float(term.x.dtype, [&]<typename T>() {
    const auto loop = by_isa(&baseline::square_sum<T>, &v3::square_sum<T>, &v4::square_sum<T>);
    const T* data = term.x.as<T>();
    const double factor = term.scale.value();
    for_each_range(term.x.elements(), threads, kSumBlock, 1, [&](int64_t begin, int64_t end) {
      ExactSum own;  // this thread's; an exact sum does not depend on the order of threads
      for (int64_t e = begin; e < end; e += term.block) own.add(loop(data + e, factor, std::min(term.block, end - e)));
#pragma omp critical(trivet_sum_of_squares)
      total.add(own);
    });
  });
  for (int word = 0; word < ExactSum::kWords; ++word) sum.as<int64_t>()[word] += total.words()[word];
}

}  // namespace

void compute(const SumOfSquares& args, int threads) {
  for (const Squares& term : args.terms) add_squares(term, args.sum, threads);
}

void compute(const DivideByNorm& args, int threads) {
  const double norm = std::sqrt(ExactSum::value_of(args.square_sum.as<int64_t>()));
  compute(Scale{args.out, 1 / (norm + args.epsilon)}, threads);
}

namespace {

// `loop` returns how many elements of a range it refused.
template <typename T, typename To>
void count_refused(int64_t (*loop)(const T*, double, double, To*, int64_t), ConstTensorView x, double scale, double limit,
                   TensorView out, TensorView refused, int threads) {
  int64_t total = 0;
  const T* data = x.as<T>();
  To* to = out.as<To>();
  for_each_element_range(x.elements(), threads, [&](int64_t begin, int64_t end) {
    const int64_t here = loop(data + begin, scale, limit, to + begin, end - begin);
#pragma omp atomic
    total += here;
  });
  *refused.as<int64_t>() += total;
}

}  // namespace

void compute(const FixedPointAdd& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() {
    const auto loop = by_isa(&baseline::add_fixed<T>, &v3::add_fixed<T>, &v4::add_fixed<T>);
    count_refused<T, int64_t>(loop, args.x, args.scale.value(), args.limit, args.sum, args.refused, threads);
  });
}

void compute(const FixedPointStore& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() {
    const auto loop = by_isa(&baseline::store_fixed<T>, &v3::store_fixed<T>, &v4::store_fixed<T>);
    count_refused<T, int64_t>(loop, args.x, args.scale.value(), args.limit, args.sum, args.refused, threads);
  });
}

void compute(const FixedPointRound& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() {
    dispatch_float(args.out.dtype, [&]<typename To>() {
      const auto loop = by_isa(&baseline::round_fixed<T, To>, &v3::round_fixed<T, To>, &v4::round_fixed<T, To>);
      count_refused<T, To>(loop, args.x, args.scale.value(), args.limit, args.out, args.refused, threads);
    });
  });
}

void compute(const FixedPointRead& args, int threads) {
  dispatch_float(args.out.dtype, [&]<typename T>() {
    const auto loop = by_isa(&baseline::read_fixed<T>, &v3::read_fixed<T>, &v4::read_fixed<T>);
    const int64_t* sums = args.sum.as<int64_t>();
    T* data = args.out.as<T>();
    for_each_element_range(args.out.elements(), threads,
                           [&](int64_t begin, int64_t end) { loop(sums + begin, data + begin, end - begin); });
  });
}

}  // namespace trivet::kernels::cpu
