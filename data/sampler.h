// Says which sample is at each place of a run, and after which steps its epochs are complete. A place is a row of a microbatch
// of a step; microbatches are numbered over all ranks (batch_layout.h).
//
//   endless       the samples of one epoch follow those of the epoch before, whatever step they fall into. What a step reads
//                 depends on the seed and the step alone (sample_order.h). Later epochs may have more samples
//   mixture       the same of several sources, mixed by weights (mixture.h)
//   distributed   what PyTorch's DistributedSampler and DataLoader give to the ranks of a job: each epoch is a whole number of
//                 steps, whose last one may be shorter (distributed_sampler.h)
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/batch_layout.h"
#include "data/options.h"
#include "data/sample_order.h"

namespace trivet::data {

// A sample and the epoch in which it is read. `sample` is -1 for a row of a shorter batch that has none.
struct Visit {
  int64_t sample = -1, epoch = 0;
};

// Any thread may call it at any time.
class Sampler {
 public:
  virtual ~Sampler() = default;
  // Steps count from 0, microbatches and rows too.
  virtual Visit visit(int64_t step, int64_t microbatch, int64_t row) const = 0;
  // The first step (counted from 1) after which this many epochs are complete.
  virtual int64_t steps_of(double epochs) const = 0;
  // Returns how many epochs are complete after this many steps.
  virtual int64_t epochs_in(int64_t steps) const = 0;
  // 0: an epoch is not a whole number of steps.
  virtual int64_t steps_per_epoch() const { return 0; }
  // Checks whether some rows of an epoch have no sample.
  virtual bool has_empty_rows() const { return false; }
  // Returns how many samples of each source of a mixture these steps read; empty without a mixture.
  virtual std::vector<int64_t> samples_of_sources(int64_t /*steps*/) const { return {}; }
};

// Rounds up, to at most 10^12, the most steps that a checkpoint can have.
int64_t whole_steps(double steps);

// Checks whether step `step` (from 1) completes an epoch whose number, from 1, is a multiple of `every`. 0: never.
inline bool completes_epoch(const Sampler& sampler, int64_t step, int64_t every) {
  return every > 0 && sampler.epochs_in(step) / every > sampler.epochs_in(step - 1) / every;
}

class EndlessSampler final : public Sampler {
 public:
  // The layout's rank does not matter.
  EndlessSampler(const SampleOrder& order, const BatchLayout& layout) : parts_{{0, 0, order}}, layout_(layout) {}
  // `sizes`: at least one, the first from epoch 0 on, in ascending order of epochs. The last one holds for all later epochs.
  EndlessSampler(const std::vector<EpochSize>& sizes, uint64_t seed, bool shuffle, const BatchLayout& layout);
  Visit visit(int64_t step, int64_t microbatch, int64_t row) const override;
  int64_t steps_of(double epochs) const override;
  int64_t epochs_in(int64_t steps) const override;

 private:
  // Epochs of one size, up to the next part.
  struct Part {
    int64_t first_epoch, first_place;
    SampleOrder order;
  };
  const Part& part_at(int64_t place) const;
  int64_t epoch_of(int64_t place) const;

  std::vector<Part> parts_;
  BatchLayout layout_;
};

// `sizes`: samples of each source of the training data, at least 1. `source`: the config's file name, for messages. Throws
// ConfigError if the data does not give every rank a sample.
std::shared_ptr<const Sampler> make_sampler(const DataConfig& data, const std::vector<int64_t>& sizes, uint64_t seed,
                                            const BatchLayout& layout, const std::string& source);

}  // namespace trivet::data
