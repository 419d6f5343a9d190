#include "data/sampler.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>

#include "data/distributed_sampler.h"
#include "data/mixture.h"

namespace trivet::data {

int64_t whole_steps(double steps) { return static_cast<int64_t>(std::ceil(std::min(steps, 1e12))); }

EndlessSampler::EndlessSampler(const std::vector<EpochSize>& sizes, uint64_t seed, bool shuffle, const BatchLayout& layout)
    : layout_(layout) {
  if (sizes.empty() || sizes[0].first_epoch != 0) throw std::logic_error("endless sampler: no size for the first epoch");
  for (const EpochSize& size : sizes) {
    int64_t first_place = 0;
    if (!parts_.empty()) {
      const Part& before = parts_.back();
      first_place = before.first_place + (size.first_epoch - before.first_epoch) * before.order.samples();
    }
    parts_.push_back({size.first_epoch, first_place, SampleOrder(size.samples, seed, shuffle)});
  }
}

const EndlessSampler::Part& EndlessSampler::part_at(int64_t place) const {
  return *std::prev(std::ranges::upper_bound(parts_, place, {}, &Part::first_place));
}

int64_t EndlessSampler::epoch_of(int64_t place) const {
  const Part& part = part_at(place);
  return part.first_epoch + (place - part.first_place) / part.order.samples();
}

Visit EndlessSampler::visit(int64_t step, int64_t microbatch, int64_t row) const {
  const int64_t place = step * layout_.global_batch() + microbatch * layout_.micro_batch + row;
  const Part& part = part_at(place);
  const int64_t epoch = epoch_of(place);
  return {part.order.sample_at(epoch, (place - part.first_place) % part.order.samples()), epoch};
}

int64_t EndlessSampler::steps_of(double epochs) const {
  const auto after = [](double number, const Part& part) { return number < static_cast<double>(part.first_epoch); };
  const Part& part = *std::prev(std::upper_bound(parts_.begin(), parts_.end(), epochs, after));
  const double samples = static_cast<double>(part.first_place) +
                         (epochs - static_cast<double>(part.first_epoch)) * static_cast<double>(part.order.samples());
  return whole_steps(samples / static_cast<double>(layout_.global_batch()));
}

int64_t EndlessSampler::epochs_in(int64_t steps) const { return epoch_of(steps * layout_.global_batch()); }

std::shared_ptr<const Sampler> make_sampler(const DataConfig& data, const std::vector<int64_t>& sizes, uint64_t seed,
                                            const BatchLayout& layout, const std::string& source) {
  if (!data.sources.empty())
    return std::make_shared<MixtureSampler>(Mixture(data.sources, sizes, seed, data.shuffle), sizes, layout);
  const int64_t samples = sizes.at(0);
  if (data.sampler == SamplerKind::Trivet)
    return std::make_shared<EndlessSampler>(SampleOrder(samples, seed, data.shuffle), layout);
  const DistributedSamplerOptions options{.samples = samples,
                                          .seed = seed,
                                          .shuffle = data.shuffle,
                                          .drop_last = data.drop_last,
                                          .drop_last_batch = data.drop_last_batch};
  return std::make_shared<DistributedSampler>(options, layout, source);
}

}  // namespace trivet::data
