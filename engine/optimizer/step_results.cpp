#include "engine/optimizer/step_results.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "engine/optimizer/sum_over.h"
#include "kernels/losses.h"
#include "kernels/verdict.h"

namespace trivet {
namespace {

// Offsets in the memory: words of losses, the square sum, and after it the rest.
constexpr int64_t kLossWords = 0;
constexpr int64_t kRefused = ExactSum::kWords;  // from the square sum, as the next two
constexpr int64_t kVerdict = kRefused + 1;
constexpr int64_t kLosses = kVerdict + kernels::kVerdictSize;
constexpr int64_t kOfALoss = 1 + kernels::kLossCounts;

int64_t end_of_loss_words(int64_t rewards) { return kLossWords + kernels::SumLosses::loss_words(rewards); }

}  // namespace

double StepLoss::mean_of(const ExactSum& sum) const {
  return targets > 0 ? sum.value() / static_cast<double>(targets) : std::numeric_limits<double>::quiet_NaN();
}

StepResults::StepResults(Allocator& allocator, MemoryMeter& meter, int microbatches, bool rewards,
                         std::vector<CountedLayer> layers)
    : rewards_(rewards ? 2 : 0),
      layers_(std::move(layers)),
      memory_(allocator, meter, MemoryCategory::Buffers, DType::Int64,
              {square_sum_place() + kLosses + (kOfALoss + rewards_) * int64_t{microbatches}}),
      host_(square_sum_place() + kLosses) {}

int64_t StepResults::square_sum_place() const { return place_of_experts(layers_.size()); }

int64_t StepResults::place_of_experts(size_t layer) const {
  int64_t place = end_of_loss_words(rewards_);
  for (size_t before = 0; before < layer; ++before) place += layers_[before].experts;
  return place;
}

TensorView StepResults::numbers(int64_t first, int64_t count) {
  TensorView view = words(first, count);
  view.dtype = DType::Float64;
  return view;
}

TensorView StepResults::losses(int microbatches) {
  const int64_t of_one = kOfALoss + rewards_;
  return numbers(square_sum_place() + kLosses, of_one * int64_t{microbatches}).reshaped({microbatches, of_one});
}
TensorView StepResults::loss_words() { return words(kLossWords, kernels::SumLosses::loss_words(rewards_)); }
TensorView StepResults::target_words() { return words(kLossWords, ExactSum::kWords + 1); }
TensorView StepResults::expert_tokens(int layer) {
  const auto place = static_cast<size_t>(layer);
  if (place >= layers_.size() || layers_[place].experts == 0) return {};
  return words(place_of_experts(place), layers_[place].experts);
}
TensorView StepResults::square_sum() { return words(square_sum_place(), ExactSum::kWords); }
TensorView StepResults::refused() { return words(square_sum_place() + kRefused, 1); }
TensorView StepResults::verdict() { return numbers(square_sum_place() + kVerdict, kernels::kVerdictSize); }

void StepResults::begin(kernels::Kernels& kernels) { kernels.zero(words(0, square_sum_place() + kVerdict)); }

void StepResults::sum_losses_over(comm::ProcessGroup& group, Stream& stream) {
  sum_over(group, words(kLossWords, square_sum_place()), stream);
}

void StepResults::read(kernels::Kernels& kernels) {
  const auto size = static_cast<int64_t>(host_.size());
  kernels.to_host(words(0, size), {host_.data(), DType::Int64, {size}});
}

StepLoss StepResults::loss() const {
  StepLoss loss;
  const auto copy = [&](int64_t first, ExactSum& sum) {
    std::copy_n(host_.begin() + first, ExactSum::kWords, sum.words().begin());
  };
  copy(kLossWords, loss.loss_sum);
  loss.targets = host_[kLossWords + ExactSum::kWords];
  loss.correct = host_[kLossWords + ExactSum::kWords + 1];
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    const auto first = host_.begin() + place_of_experts(layer);
    if (layers_[layer].experts > 0) loss.experts.push_back({layers_[layer].name, {first, first + layers_[layer].experts}});
  }
  if (!has_rewards()) return loss;
  copy(kLossWords + kernels::SumLosses::loss_words(0), loss.chosen_reward_sum);
  copy(kLossWords + kernels::SumLosses::loss_words(1), loss.rejected_reward_sum);
  return loss;
}

double StepResults::grad_norm() const { return std::bit_cast<double>(host_[square_sum_place() + kVerdict + kernels::kNorm]); }
bool StepResults::applied() const { return std::bit_cast<double>(host_[square_sum_place() + kVerdict + kernels::kApply]) != 0; }

}  // namespace trivet
