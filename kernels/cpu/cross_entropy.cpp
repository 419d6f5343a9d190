// Softmax cross-entropy. Rows are computed in parallel, each by one thread; their losses are added in row order.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/balanced_tree.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"
#include "kernels/cpu/pieces.h"
#include "kernels/cpu/scratch.h"

#define TRIVET_LOOPS "kernels/cpu/cross_entropy_loops.inl"
#include "kernels/cpu/for_each_isa.inl"

// T rows, V vocabulary
namespace trivet::kernels::cpu {
namespace {

constexpr int64_t kRoomForLanes = 16;

template <typename T>
struct RowLoops {
  using Sum = SumOf<T>;
  Sum (*maximum)(const T*, int64_t) = by_isa(&baseline::row_maximum<T>, &v3::row_maximum<T>, &v4::row_maximum<T>);
  double (*exponentials)(const T*, int64_t, Sum, Sum*) = by_isa(&baseline::exponentials_of_row<T>, &v3::exponentials_of_row<T>,
                                                                &v4::exponentials_of_row<T>);
};

// Statistics of a row that must be known before its gradient is computed.
template <typename Sum>
struct RowStatistics {
  Sum maximum;
  double total;  // sum of exponentials
  double target_logit;
};

// exponentials[v] = exp(logits[v] - maximum); returns their sum. If there are chunks, a balanced tree adds their sums.
template <typename T, typename Sum = SumOf<T>>
double sum_of_exponentials(const RowLoops<T>& loops, const T* logits, int64_t columns, Sum maximum,
                           std::span<const int64_t> chunk_ends, Sum* exponentials) {
  if (chunk_ends.empty()) return loops.exponentials(logits, columns, maximum, exponentials);
  const auto chunk = [&](int64_t i) -> std::optional<Sum> {
    const int64_t begin = i == 0 ? 0 : chunk_ends[i - 1], end = chunk_ends[i];
    if (begin == end) return std::nullopt;
    return static_cast<Sum>(loops.exponentials(logits + begin, end - begin, maximum, exponentials + begin));
  };
  return balanced_sum<Sum>(0, static_cast<int64_t>(chunk_ends.size()), chunk).value_or(Sum{0});
}

// Values that determine a row's gradient, apart from its logits.
struct GradientOfRow {
  int64_t target;  // may be in another part of the row
  double scale, soft_cap;
};

// `exponentials` have been computed. dlogits may be logits.
template <typename T, typename Out, typename Sum = SumOf<T>>
void row_gradient(const RowStatistics<Sum>& row, const Sum* exponentials, const T* logits, int64_t columns,
                  const GradientOfRow& gradient, Out* dlogits) {
  const auto scale_row = by_isa(&baseline::scale_row<Sum, Out>, &v3::scale_row<Sum, Out>, &v4::scale_row<Sum, Out>);
  const auto scale_capped =
      by_isa(&baseline::scale_capped_row<T, Out>, &v3::scale_capped_row<T, Out>, &v4::scale_capped_row<T, Out>);
  const Sum factor = static_cast<Sum>(gradient.scale / row.total);
  if (gradient.soft_cap > 0)
    scale_capped(exponentials, logits, columns, factor, static_cast<Sum>(gradient.soft_cap), dlogits);
  else
    scale_row(exponentials, columns, factor, dlogits);
  if (gradient.target < 0 || gradient.target >= columns) return;
  const double probability = static_cast<double>(exponentials[gradient.target]) / row.total;
  const double share = gradient.soft_cap > 0 ? row.target_logit / gradient.soft_cap : 0;
  dlogits[gradient.target] = narrow<Out>(static_cast<Sum>((probability - 1.0) * gradient.scale * (1.0 - share * share)));
}

template <typename Sum>
double loss_of(const RowStatistics<Sum>& row) {
  return std::log(row.total) + static_cast<double>(row.maximum) - row.target_logit;
}

template <typename Args>
double scale_of(const Args& args, int64_t row) {
  const double scale = args.gradient_scale.value();
  return args.row_factors.absent() ? scale : scale * args.row_factors.template as<double>()[row];
}

// The loss of a row that counts. dlogits may be null, and may be the logits.
template <typename T, typename Out>
double row_loss(const CrossEntropy& args, const T* logits, int64_t index, int32_t target, Out* dlogits) {
  using Sum = SumOf<T>;
  const int64_t vocabulary = args.logits.shape.cols();
  const RowLoops<T> loops;
  thread_local Scratch scratch;
  Sum* exponentials = scratch.reserve_elements<Sum>(vocabulary + kRoomForLanes);
  RowStatistics<Sum> row{loops.maximum(logits, vocabulary), 0, widen<double>(logits[target])};
  row.total = sum_of_exponentials(loops, logits, vocabulary, row.maximum, args.chunk_ends, exponentials);
  if (dlogits) row_gradient<T>(row, exponentials, logits, vocabulary, {target, scale_of(args, index), args.soft_cap}, dlogits);
  return loss_of(row);
}

// Returns the same for a part of a row, with the maximum and sums of the whole row.
template <typename T, typename Out>
double row_loss(const CrossEntropyOfPart& args, const T* logits, int64_t index, int64_t target, Out* dlogits) {
  using Sum = SumOf<T>;
  const int64_t columns = args.logits.shape.cols();
  const Sum* sums = args.sums.as<Sum>();
  const RowStatistics<Sum> row{args.maximum.as<Sum>()[index], static_cast<double>(sums[index]),
                               static_cast<double>(sums[args.targets.elements() + index])};
  if (dlogits) {
    thread_local Scratch scratch;
    Sum* exponentials = scratch.reserve_elements<Sum>(columns + kRoomForLanes);
    RowLoops<T>().exponentials(logits, columns, row.maximum, exponentials);
    row_gradient<T>(row, exponentials, logits, columns, {target - args.columns.first, scale_of(args, index), args.soft_cap},
                    dlogits);
  }
  return loss_of(row);
}

void check_targets(ConstTensorView targets, int64_t vocabulary) {
  for (int64_t row = 0; row < targets.elements(); ++row)
    if (targets.as<int32_t>()[row] >= vocabulary)
      throw std::out_of_range("cross_entropy: target " + std::to_string(targets.as<int32_t>()[row]) + " of row " +
                              std::to_string(row) + " must be below the vocabulary size " + std::to_string(vocabulary));
}

template <typename Body>
void for_each_row(int64_t rows, int64_t columns, int threads, const Body& body) {
  const int64_t rows_per_piece = std::max<int64_t>(1, 16384 / std::max<int64_t>(columns, 1));
  for_each_piece((rows + rows_per_piece - 1) / rows_per_piece, threads, [&](int64_t piece) {
    for (int64_t row = piece * rows_per_piece; row < std::min(rows, (piece + 1) * rows_per_piece); ++row) body(row);
  });
}

// loss(row, drow) returns the loss of a row that counts. The gradients of the other rows are zero.
template <typename Out, typename Args, typename Loss>
void sum_of_losses(const Args& args, int threads, const Loss& loss) {
  const int64_t rows = args.logits.shape.rows(), columns = args.logits.shape.cols();
  const int32_t* targets = args.targets.template as<int32_t>();
  Out* dlogits = args.dlogits.absent() ? nullptr : args.dlogits.template as<Out>();
  thread_local Scratch scratch;
  const bool keeps_losses = !args.row_losses.absent();
  double* losses = keeps_losses ? args.row_losses.template as<double>() : scratch.reserve_elements<double>(rows);
  for_each_row(rows, columns, threads, [&](int64_t row) {
    Out* drow = dlogits ? dlogits + row * columns : nullptr;
    if (targets[row] >= 0) {
      losses[row] = loss(row, drow);
      return;
    }
    losses[row] = 0;
    if (drow) std::fill_n(drow, columns, Out{});
  });
  if (args.loss.absent()) return;
  double sum = 0;
  int64_t tokens = 0;
  for (int64_t row = 0; row < rows; ++row) {
    if (targets[row] < 0) continue;
    sum += losses[row];
    ++tokens;
  }
  double* total = args.loss.template as<double>();
  total[0] += sum;
  total[1] += static_cast<double>(tokens);
}

// body.operator()<T, Out>() with the types of logits and dlogits.
template <typename Args, typename Body>
void dispatch_logits(const Args& args, const Body& body) {
  dispatch_float(args.logits.dtype, [&]<typename T>() {
    const DType out = args.dlogits.absent() ? args.logits.dtype : args.dlogits.dtype;
    dispatch_float(out, [&]<typename Out>() { body.template operator()<T, Out>(); });
  });
}

}  // namespace

void compute(const CrossEntropy& args, int threads) {
  if (args.logits.elements() == 0) return;
  const int64_t vocabulary = args.logits.shape.cols();
  check_targets(args.targets, vocabulary);
  dispatch_logits(args, [&]<typename T, typename Out>() {
    sum_of_losses<Out>(args, threads, [&](int64_t row, Out* drow) {
      return row_loss(args, args.logits.as<T>() + row * vocabulary, row, args.targets.as<int32_t>()[row], drow);
    });
  });
}

void compute(const RowMaxima& args, int threads) {
  const int64_t columns = args.logits.shape.cols();
  dispatch_float(args.logits.dtype, [&]<typename T>() {
    const RowLoops<T> loops;
    for_each_row(args.maximum.elements(), columns, threads, [&](int64_t row) {
      args.maximum.as<SumOf<T>>()[row] = loops.maximum(args.logits.as<T>() + row * columns, columns);
    });
  });
}

void compute(const RowSums& args, int threads) {
  const int64_t rows = args.targets.elements(), columns = args.logits.shape.cols();
  check_targets(args.targets, args.columns.vocabulary > 0 ? args.columns.vocabulary : columns);
  dispatch_float(args.logits.dtype, [&]<typename T>() {
    using Sum = SumOf<T>;
    const RowLoops<T> loops;
    for_each_row(rows, columns, threads, [&](int64_t row) {
      thread_local Scratch scratch;
      Sum* exponentials = scratch.reserve_elements<Sum>(columns + kRoomForLanes);
      const T* logits = args.logits.as<T>() + row * columns;
      const int64_t target = args.targets.as<int32_t>()[row] - args.columns.first;
      const Sum maximum = args.maximum.as<Sum>()[row];
      Sum* sums = args.sums.as<Sum>();
      sums[row] = static_cast<Sum>(sum_of_exponentials(loops, logits, columns, maximum, args.chunk_ends, exponentials));
      sums[rows + row] = target >= 0 && target < columns ? widen<Sum>(logits[target]) : Sum{0};
    });
  });
}

void compute(const CrossEntropyOfPart& args, int threads) {
  const int64_t columns = args.logits.shape.cols();
  dispatch_logits(args, [&]<typename T, typename Out>() {
    sum_of_losses<Out>(args, threads, [&](int64_t row, Out* drow) {
      return row_loss(args, args.logits.as<T>() + row * columns, row, args.targets.as<int32_t>()[row], drow);
    });
  });
}

void compute(const CountCorrect& args, int) {
  const int64_t rows = args.logits.shape.rows(), columns = args.logits.shape.cols();
  const int32_t* targets = args.targets.as<int32_t>();
  int64_t correct = 0;
  dispatch_float(args.logits.dtype, [&]<typename T>() {
    for (int64_t row = 0; row < rows; ++row) {
      const T* logits = args.logits.as<T>() + row * columns;
      const auto less = [](T a, T b) { return widen<SumOf<T>>(a) < widen<SumOf<T>>(b); };
      correct += targets[row] >= 0 && std::max_element(logits, logits + columns, less) - logits == targets[row];
    }
  });
  args.correct.as<double>()[0] += static_cast<double>(correct);
}

}  // namespace trivet::kernels::cpu
