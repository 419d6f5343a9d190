// The order in which a run reads the samples of an epoch.
//
// Sample number n of a run (n = step x global batch + position in the batch) is found with a computed permutation of the
// samples of an epoch. So what a step reads depends only on the seed and the step, never on the layout, and there is no index
// file and nothing to save but `step`.
#pragma once

#include <cstdint>

namespace trivet::data {

// An epoch, and how many samples each has from there on.
struct EpochSize {
  int64_t first_epoch = 0, samples = 0;
  bool operator==(const EpochSize&) const = default;
};

class SampleOrder {
 public:
  // `samples` of an epoch, at least 1.
  SampleOrder(int64_t samples, uint64_t seed, bool shuffle) : samples_(samples), seed_(seed), shuffle_(shuffle) {}
  int64_t samples() const { return samples_; }  // per epoch
  int64_t sample_of(int64_t number) const;      // any number >= 0: epoch = number / samples
  // The sample at a place of an epoch, 0 .. samples() - 1.
  int64_t sample_at(int64_t epoch, int64_t place) const;

 private:
  int64_t samples_;
  uint64_t seed_;
  bool shuffle_;
};

}  // namespace trivet::data
