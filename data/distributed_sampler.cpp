#include "data/distributed_sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>

#include "core/error.h"

namespace trivet::data {
namespace {

int64_t divided_up(int64_t count, int64_t by) { return (count + by - 1) / by; }

}  // namespace

// Fisher and Yates' shuffle from the first place on, with remainders of a Mersenne Twister's numbers. The generator uses the
// low 32 bits of the seed.
std::vector<uint32_t> torch_permutation(int64_t count, uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  for (int64_t place = 0; place + 1 < count; ++place) {
    const auto left = static_cast<uint32_t>(count - place);
    std::swap(order[place], order[place + static_cast<uint32_t>(random()) % left]);
  }
  return order;
}

DistributedSampler::DistributedSampler(const DistributedSamplerOptions& options, const BatchLayout& layout,
                                       const std::string& source)
    : options_(options), layout_(layout) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("{}: data.sampler: \"pytorch\" {}", source, why));
  };
  if (options.samples > kMostSamples)
    refuse(
        fmt::format("keeps the order of an epoch in memory and takes at most {} samples, the training data has {}; use "
                    "\"trivet\", which computes the order",
                    kMostSamples, options.samples));
  samples_per_rank_ = options.drop_last ? options.samples / layout.data_size : divided_up(options.samples, layout.data_size);
  const int64_t microbatches =
      options.drop_last_batch ? samples_per_rank_ / layout.micro_batch : divided_up(samples_per_rank_, layout.micro_batch);
  steps_per_epoch_ = divided_up(microbatches, layout.accumulation);
  if (samples_per_rank_ == 0)
    refuse(
        fmt::format("with data.drop_last leaves no samples: {} cannot be divided among {} ranks; set data.drop_last to false, "
                    "or use fewer ranks",
                    options.samples, layout.data_size));
  if (steps_per_epoch_ == 0)
    refuse(
        fmt::format("with dataloader_drop_last leaves no batch: a rank has {} samples in an epoch, and a micro batch needs {}; "
                    "set dataloader_drop_last to false, or use a smaller micro batch or fewer ranks",
                    samples_per_rank_, layout.micro_batch));
}

Visit DistributedSampler::visit(int64_t step, int64_t microbatch, int64_t row) const {
  const int64_t epoch = step / steps_per_epoch_, step_in_epoch = step % steps_per_epoch_;
  const int64_t rank = microbatch % layout_.data_size;
  const int64_t of_rank = step_in_epoch * layout_.accumulation + microbatch / layout_.data_size;  // its microbatches
  const int64_t place = of_rank * layout_.micro_batch + row;
  const bool left_out = options_.drop_last_batch && (of_rank + 1) * layout_.micro_batch > samples_per_rank_;
  if (place >= samples_per_rank_ || left_out) return {-1, epoch};
  const int64_t index = (place * layout_.data_size + rank) % options_.samples;  // the list is repeated as often as needed
  return {options_.shuffle ? (*permutation_of(epoch))[index] : index, epoch};
}

int64_t DistributedSampler::steps_of(double epochs) const {
  return whole_steps(epochs * static_cast<double>(steps_per_epoch_));
}

bool DistributedSampler::has_empty_rows() const {
  const int64_t rest = options_.drop_last_batch ? samples_per_rank_ % layout_.micro_batch : 0;
  return samples_per_rank_ - rest < steps_per_epoch_ * layout_.accumulation * layout_.micro_batch;
}

std::shared_ptr<const DistributedSampler::Permutation> DistributedSampler::permutation_of(int64_t epoch) const {
  const std::scoped_lock lock(mutex_);
  if (epoch != epoch_) {
    permutation_ =
        std::make_shared<Permutation>(torch_permutation(options_.samples, options_.seed + static_cast<uint64_t>(epoch)));
    epoch_ = epoch;
  }
  return permutation_;
}

}  // namespace trivet::data
