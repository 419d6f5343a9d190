// A weighted mixture of sources: which source, and which of its samples, is at each place of a run.
//
// Places are taken in blocks of 65,536. In each block every source has a fixed number of places, its weight's share rounded to
// whole places, at places that a computed permutation chooses, the same in all blocks. So the shares hold exactly after each
// block and closely before, and what is at a place is a function of the seed and the place alone: nothing is saved but the
// step. Each source goes through its own samples, epoch after epoch, as if it were the only one.
//
//   block of 8, quotas 3 and 5     source   1 0 1 1 0 1 0 1 | 1 0 1 ...
//                                  number   0 0 1 2 1 3 2 4 | 5 3 6 ...    of the source's own samples, in its own order
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/options.h"
#include "data/sample_order.h"
#include "data/sample_source.h"
#include "data/sampler.h"

namespace trivet::data {

inline constexpr int64_t kMixtureBlock = 65536;

// Whole places of a block for each weight, by largest remainders. Throws DataError if a weight is too small for one place.
std::vector<int64_t> mixture_quotas(const std::vector<DataSource>& sources);

class Mixture {
 public:
  // `sizes`: samples of each source, in the order of `sources`.
  Mixture(const std::vector<DataSource>& sources, const std::vector<int64_t>& sizes, uint64_t seed, bool shuffle);

  struct Choice {
    size_t source = 0;
    int64_t sample = 0, epoch = 0;  // the source's
  };
  Choice at(int64_t place) const;
  // Returns how many of the first `places` each source has.
  std::vector<int64_t> counts(int64_t places) const;

 private:
  // A place of a block: its source, and how many places before it in the block have the same one.
  struct Slot {
    uint32_t source, before;
  };

  std::vector<int64_t> quotas_;
  std::vector<Slot> block_;
  std::vector<SampleOrder> orders_;
};

// The samples of all sources: those of the first, then those of the second ...
class JoinedSource final : public SampleSource {
 public:
  // Joins at least one source; all have the same spec.
  explicit JoinedSource(std::vector<std::shared_ptr<const SampleSource>> sources);

  const SampleSpec& spec() const override { return sources_[0]->spec(); }
  int64_t samples() const override { return ends_.back(); }
  std::vector<int64_t> sizes_of_sources() const override;
  void fill(int64_t sample, int64_t epoch, std::span<std::byte> input, std::span<int32_t> targets) const override;
  bool may_lack_targets() const override;
  bool has_targets(int64_t sample) const override;
  void fill_documents(int64_t sample, std::span<int32_t> first_tokens) const override;
  int64_t pairs() const override;
  void fill_answers(int64_t sample, std::span<int64_t> answers) const override;
  void fill_reference(int64_t sample, std::span<double> log_probabilities) const override;
  std::string digest() const override;

 private:
  std::vector<std::shared_ptr<const SampleSource>> sources_;
  std::vector<int64_t> ends_;
};

// An epoch is as many places as all sources together have samples.
class MixtureSampler final : public Sampler {
 public:
  // `sizes` of the sources that a JoinedSource holds. The layout's rank does not matter.
  MixtureSampler(Mixture mixture, const std::vector<int64_t>& sizes, const BatchLayout& layout);

  Visit visit(int64_t step, int64_t microbatch, int64_t row) const override;
  int64_t steps_of(double epochs) const override;
  int64_t epochs_in(int64_t steps) const override;
  std::vector<int64_t> samples_of_sources(int64_t steps) const override;

 private:
  Mixture mixture_;
  std::vector<int64_t> firsts_;  // number of each source's first sample
  int64_t samples_;
  BatchLayout layout_;
};

}  // namespace trivet::data
