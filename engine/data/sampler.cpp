#include "engine/data/sampler.h"

#include <algorithm>
#include <cmath>

#include "engine/data/distributed_sampler.h"
#include "engine/data/mixture.h"

namespace trivet::data {

int64_t whole_steps(double steps) { return static_cast<int64_t>(std::ceil(std::min(steps, 1e12))); }

Visit EndlessSampler::visit(int64_t step, int64_t microbatch, int64_t row) const {
  const int64_t place = step * layout_.global_batch() + microbatch * layout_.micro_batch + row;
  return {order_.sample_of(place), place / order_.samples()};
}

int64_t EndlessSampler::steps_of(double epochs) const {
  const double all_samples = epochs * static_cast<double>(order_.samples());
  return whole_steps(all_samples / static_cast<double>(layout_.global_batch()));
}

int64_t EndlessSampler::epochs_in(int64_t steps) const { return steps * layout_.global_batch() / order_.samples(); }

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
