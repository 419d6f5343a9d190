#include "data/mixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "core/error.h"
#include "core/random.h"
#include "data/hash.h"

namespace trivet::data {
namespace {

std::vector<int64_t> ends_of(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> ends(sizes.size());
  std::partial_sum(sizes.begin(), sizes.end(), ends.begin());
  return ends;
}

// Returns the source that a number falls into, when each has the numbers up to its end.
size_t source_of(const std::vector<int64_t>& ends, int64_t number) {
  return static_cast<size_t>(std::ranges::upper_bound(ends, number) - ends.begin());
}

}  // namespace

std::vector<int64_t> mixture_quotas(const std::vector<DataSource>& sources) {
  double sum = 0;
  for (const DataSource& source : sources) sum += source.weight;
  std::vector<int64_t> quotas;
  std::vector<std::pair<double, size_t>> rests;  // negative: the largest comes first, the earliest among equal ones
  for (size_t i = 0; i < sources.size(); ++i) {
    const double share = sources[i].weight / sum * kMixtureBlock;
    quotas.push_back(static_cast<int64_t>(std::floor(share)));
    rests.emplace_back(std::floor(share) - share, i);
  }
  std::ranges::sort(rests);
  int64_t left = kMixtureBlock - std::accumulate(quotas.begin(), quotas.end(), int64_t{0});
  for (size_t i = 0; left > 0; ++i, --left) ++quotas[rests[i % rests.size()].second];
  for (size_t i = 0; i < sources.size(); ++i)
    if (quotas[i] == 0)
      throw DataError(
          ExitCode::Usage,
          fmt::format("data.sources: the weight {} of \"{}\" is less than 1/{} of all weights; use a larger one, or "
                      "leave the source out",
                      sources[i].weight, sources[i].path, kMixtureBlock));
  return quotas;
}

Mixture::Mixture(const std::vector<DataSource>& sources, const std::vector<int64_t>& sizes, uint64_t seed, bool shuffle)
    : quotas_(mixture_quotas(sources)) {
  if (sizes.size() != sources.size()) throw std::logic_error("mixture: a size for each source is needed");
  const std::vector<int64_t> ends = ends_of(quotas_);
  const SampleOrder order(kMixtureBlock, random_key(seed, "mixture of sources"), true);
  std::vector<uint32_t> counts(sizes.size());
  for (int64_t place = 0; place < kMixtureBlock; ++place) {
    const size_t source = source_of(ends, order.sample_of(place));
    block_.push_back({static_cast<uint32_t>(source), counts[source]++});
  }
  for (size_t i = 0; i < sizes.size(); ++i)
    orders_.emplace_back(sizes[i], random_key(seed, fmt::format("source {} of a mixture", i)), shuffle);
}

Mixture::Choice Mixture::at(int64_t place) const {
  if (place < 0) throw std::logic_error("mixture: negative place");
  const auto [source, before] = block_[place % kMixtureBlock];
  const int64_t number = place / kMixtureBlock * quotas_[source] + before;
  const SampleOrder& order = orders_[source];
  return {source, order.sample_of(number), number / order.samples()};
}

std::vector<int64_t> Mixture::counts(int64_t places) const {
  std::vector<int64_t> counts;
  for (const int64_t quota : quotas_) counts.push_back(places / kMixtureBlock * quota);
  for (int64_t place = 0; place < places % kMixtureBlock; ++place) ++counts[block_[place].source];
  return counts;
}

JoinedSource::JoinedSource(std::vector<std::shared_ptr<const SampleSource>> sources) : sources_(std::move(sources)) {
  ends_ = ends_of(sizes_of_sources());
}

std::vector<int64_t> JoinedSource::sizes_of_sources() const {
  std::vector<int64_t> sizes;
  for (const auto& source : sources_) sizes.push_back(source->samples());
  return sizes;
}

void JoinedSource::fill(int64_t sample, int64_t epoch, std::span<std::byte> input, std::span<int32_t> targets) const {
  const size_t source = source_of(ends_, sample);
  sources_[source]->fill(sample - (ends_[source] - sources_[source]->samples()), epoch, input, targets);
}

bool JoinedSource::may_lack_targets() const {
  return std::ranges::any_of(sources_, [](const auto& source) { return source->may_lack_targets(); });
}

bool JoinedSource::has_targets(int64_t sample) const {
  const size_t source = source_of(ends_, sample);
  return sources_[source]->has_targets(sample - (ends_[source] - sources_[source]->samples()));
}

void JoinedSource::fill_documents(int64_t sample, std::span<int32_t> first_tokens) const {
  const size_t source = source_of(ends_, sample);
  sources_[source]->fill_documents(sample - (ends_[source] - sources_[source]->samples()), first_tokens);
}

int64_t JoinedSource::pairs() const {
  return std::accumulate(sources_.begin(), sources_.end(), int64_t{0},
                         [](int64_t sum, const auto& source) { return sum + source->pairs(); });
}

void JoinedSource::fill_answers(int64_t sample, std::span<int64_t> answers) const {
  const size_t source = source_of(ends_, sample);
  sources_[source]->fill_answers(sample - (ends_[source] - sources_[source]->samples()), answers);
  int64_t before = 0;
  for (size_t i = 0; i < source; ++i) before += 2 * sources_[i]->pairs();
  for (int64_t& answer : answers)
    if (answer >= 0) answer += before;
}

void JoinedSource::fill_reference(int64_t sample, std::span<double> log_probabilities) const {
  const size_t source = source_of(ends_, sample);
  sources_[source]->fill_reference(sample - (ends_[source] - sources_[source]->samples()), log_probabilities);
}

std::string JoinedSource::digest() const {
  std::string all;
  for (const auto& source : sources_) all += source->digest() + "\n";
  return fmt::format("{} sources xxh3 {}", sources_.size(), hexadecimal(hash_bytes(all)));
}

MixtureSampler::MixtureSampler(Mixture mixture, const std::vector<int64_t>& sizes, const BatchLayout& layout)
    : mixture_(std::move(mixture)), layout_(layout) {
  const std::vector<int64_t> ends = ends_of(sizes);
  for (size_t i = 0; i < sizes.size(); ++i) firsts_.push_back(ends[i] - sizes[i]);
  samples_ = ends.back();
}

Visit MixtureSampler::visit(int64_t step, int64_t microbatch, int64_t row) const {
  const Mixture::Choice choice = mixture_.at(step * layout_.global_batch() + microbatch * layout_.micro_batch + row);
  return {firsts_[choice.source] + choice.sample, choice.epoch};
}

int64_t MixtureSampler::steps_of(double epochs) const {
  return whole_steps(epochs * static_cast<double>(samples_) / static_cast<double>(layout_.global_batch()));
}

int64_t MixtureSampler::epochs_in(int64_t steps) const { return steps * layout_.global_batch() / samples_; }

std::vector<int64_t> MixtureSampler::samples_of_sources(int64_t steps) const {
  return mixture_.counts(steps * layout_.global_batch());
}

}  // namespace trivet::data
