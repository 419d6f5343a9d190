// Softmax cross-entropy: rows in parallel, each by one thread; the losses of rows are added in the order of rows.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

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

// The loss of a row that counts. dlogits may be null, and may be the logits.
template <typename T, typename Out>
double row_loss(const T* logits, int64_t vocabulary, int32_t target, double gradient_scale, Out* dlogits) {
  using Sum = SumOf<T>;
  const auto maximum_of_row = by_isa(&baseline::row_maximum<T>, &v3::row_maximum<T>, &v4::row_maximum<T>);
  const auto exponentials_of_row =
      by_isa(&baseline::exponentials_of_row<T>, &v3::exponentials_of_row<T>, &v4::exponentials_of_row<T>);
  const auto scale_row = by_isa(&baseline::scale_row<Sum, Out>, &v3::scale_row<Sum, Out>, &v4::scale_row<Sum, Out>);
  thread_local Scratch scratch;
  Sum* exponentials = scratch.reserve_elements<Sum>(vocabulary + kRoomForLanes);
  const Sum maximum = maximum_of_row(logits, vocabulary);
  const double total = exponentials_of_row(logits, vocabulary, maximum, exponentials);
  const double loss = std::log(total) + static_cast<double>(maximum) - widen<double>(logits[target]);
  if (dlogits) {
    scale_row(exponentials, vocabulary, static_cast<Sum>(gradient_scale / total), dlogits);
    const double probability = static_cast<double>(exponentials[target]) / total;
    dlogits[target] = narrow<Out>(static_cast<Sum>((probability - 1.0) * gradient_scale));
  }
  return loss;
}

void check(const CrossEntropy& args) {
  const int64_t rows = args.logits.shape.rows(), vocabulary = args.logits.shape.cols();
  if (args.targets.elements() != rows)
    throw std::logic_error("cross_entropy: logits " + to_string(args.logits.shape) + " and targets " +
                           to_string(args.targets.shape) + " differ in rows");
  if (!args.dlogits.absent() && args.dlogits.elements() != args.logits.elements())
    throw std::logic_error("cross_entropy: dlogits " + to_string(args.dlogits.shape) + " must have the shape of logits " +
                           to_string(args.logits.shape));
  const int32_t* targets = args.targets.as<int32_t>();
  for (int64_t row = 0; row < rows; ++row)
    if (targets[row] >= vocabulary)
      throw std::out_of_range("cross_entropy: target " + std::to_string(targets[row]) + " of row " + std::to_string(row) +
                              " is not below the vocabulary of " + std::to_string(vocabulary));
}

template <typename T, typename Out>
CrossEntropyResult all_rows(const CrossEntropy& args, int threads) {
  const int64_t rows = args.logits.shape.rows(), vocabulary = args.logits.shape.cols();
  const T* logits = args.logits.as<T>();
  const int32_t* targets = args.targets.as<int32_t>();
  Out* dlogits = args.dlogits.absent() ? nullptr : args.dlogits.as<Out>();
  thread_local Scratch scratch;
  double* losses = scratch.reserve_elements<double>(rows);
  const int64_t rows_per_piece = std::max<int64_t>(1, 16384 / std::max<int64_t>(vocabulary, 1));
  for_each_piece((rows + rows_per_piece - 1) / rows_per_piece, threads, [&](int64_t piece) {
    for (int64_t row = piece * rows_per_piece; row < std::min(rows, (piece + 1) * rows_per_piece); ++row) {
      Out* drow = dlogits ? dlogits + row * vocabulary : nullptr;
      if (targets[row] >= 0)
        losses[row] = row_loss(logits + row * vocabulary, vocabulary, targets[row], args.gradient_scale, drow);
      else if (drow)
        std::fill_n(drow, vocabulary, Out{});
    }
  });
  CrossEntropyResult result;
  for (int64_t row = 0; row < rows; ++row) {
    if (targets[row] < 0) continue;
    result.loss_sum += losses[row];
    ++result.tokens;
  }
  return result;
}

}  // namespace

CrossEntropyResult cross_entropy(const CrossEntropy& args, int threads) {
  if (args.logits.elements() == 0) return {};
  check(args);
  return dispatch_float(args.logits.dtype, [&]<typename T>() {
    const DType out = args.dlogits.absent() ? args.logits.dtype : args.dlogits.dtype;
    return dispatch_float(out, [&]<typename Out>() { return all_rows<T, Out>(args, threads); });
  });
}

}  // namespace trivet::kernels::cpu
