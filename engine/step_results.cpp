#include "engine/step_results.h"

#include <algorithm>
#include <bit>

#include "engine/sum_over.h"
#include "kernels/losses.h"
#include "kernels/verdict.h"

namespace trivet {
namespace {

// Offsets in the memory.
constexpr int64_t kLossWords = 0;
constexpr int64_t kSquareSum = kLossWords + ExactSum::kWords + kernels::kLossCounts;
constexpr int64_t kOfALoss = 1 + kernels::kLossCounts;
constexpr int64_t kRefused = kSquareSum + ExactSum::kWords;
constexpr int64_t kVerdict = kRefused + 1;
constexpr int64_t kLosses = kVerdict + kernels::kVerdictSize;

}  // namespace

double StepLoss::mean() const { return targets > 0 ? loss_sum.value() / static_cast<double>(targets) : 0.0; }

StepResults::StepResults(Allocator& allocator, MemoryMeter& meter, int microbatches)
    : memory_(allocator, meter, MemoryCategory::Buffers, DType::Int64, {kLosses + kOfALoss * int64_t{microbatches}}),
      host_(kLosses) {}

TensorView StepResults::numbers(int64_t first, int64_t count) {
  TensorView view = words(first, count);
  view.dtype = DType::Float64;
  return view;
}

TensorView StepResults::losses(int microbatches) {
  return numbers(kLosses, kOfALoss * int64_t{microbatches}).reshaped({microbatches, kOfALoss});
}
TensorView StepResults::loss_words() { return words(kLossWords, ExactSum::kWords + kernels::kLossCounts); }
TensorView StepResults::target_words() { return words(kLossWords, ExactSum::kWords + 1); }
TensorView StepResults::square_sum() { return words(kSquareSum, ExactSum::kWords); }
TensorView StepResults::refused() { return words(kRefused, 1); }
TensorView StepResults::verdict() { return numbers(kVerdict, kernels::kVerdictSize); }

void StepResults::begin(kernels::Kernels& kernels) { kernels.zero(words(0, kVerdict)); }

void StepResults::sum_losses_over(comm::ProcessGroup& group, Stream& stream) { sum_over(group, loss_words(), stream); }

void StepResults::read(kernels::Kernels& kernels) {
  kernels.to_host(words(0, kLosses), {host_.data(), DType::Int64, {kLosses}});
}

StepLoss StepResults::loss() const {
  StepLoss loss;
  std::copy_n(host_.begin() + kLossWords, ExactSum::kWords, loss.loss_sum.words().begin());
  loss.targets = host_[kLossWords + ExactSum::kWords];
  loss.correct = host_[kLossWords + ExactSum::kWords + 1];
  return loss;
}

double StepResults::grad_norm() const { return std::bit_cast<double>(host_[kVerdict + kernels::kNorm]); }
bool StepResults::applied() const { return std::bit_cast<double>(host_[kVerdict + kernels::kApply]) != 0; }

}  // namespace trivet
