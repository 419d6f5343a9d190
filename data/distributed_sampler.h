// The samples that PyTorch's DistributedSampler (num_replicas: data ranks, seed: training.seed) and a DataLoader on each rank
// (batch_size: the micro batch) give to a job that calls set_epoch() in each epoch, to the last bit.
//
// The samples of an epoch are shuffled by torch.randperm, whose generator is seeded with seed + epoch. The list is made as long
// as a multiple of the ranks: by its first samples again, or, with drop_last, by leaving out its last ones. Rank r takes each
// `ranks`-th sample from number r on:
//
//   10 samples, 4 ranks          drop_last: 8 samples
//   rank 0   p0 p4 p8            p0 p4
//   rank 1   p1 p5 p9            p1 p5
//   rank 2   p2 p6 p0            p2 p6
//   rank 3   p3 p7 p1            p3 p7
//
// A rank's samples are cut into microbatches, and these into steps. In the last step of an epoch, microbatches may have fewer
// rows or be empty; with drop_last_batch, a microbatch that would have fewer rows is left out. Empty rows do not count in the
// mean of the loss, so a shorter step is what it is in PyTorch.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "data/sampler.h"

namespace trivet::data {

struct DistributedSamplerOptions {
  int64_t samples = 1;
  uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = false;        // DistributedSampler's
  bool drop_last_batch = false;  // DataLoader's drop_last
};

class DistributedSampler final : public Sampler {
 public:
  // torch.randperm draws numbers of 32 bits for fewer than (2^32 - 1) / 20 samples, and of 64 bits for more.
  static constexpr int64_t kMostSamples = 214'748'363;

  // Throws ConfigError if there are more samples than that, or fewer than a step needs.
  DistributedSampler(const DistributedSamplerOptions& options, const BatchLayout& layout, const std::string& source);

  Visit visit(int64_t step, int64_t microbatch, int64_t row) const override;
  int64_t steps_of(double epochs) const override;
  int64_t epochs_in(int64_t steps) const override { return steps / steps_per_epoch_; }
  int64_t steps_per_epoch() const override { return steps_per_epoch_; }
  bool has_empty_rows() const override;

 private:
  using Permutation = std::vector<uint32_t>;
  std::shared_ptr<const Permutation> permutation_of(int64_t epoch) const;

  DistributedSamplerOptions options_;
  BatchLayout layout_;
  int64_t samples_per_rank_, steps_per_epoch_;
  // The epoch that was asked for last. Steps come in order, so this is computed once per epoch.
  mutable std::mutex mutex_;
  mutable int64_t epoch_ = -1;
  mutable std::shared_ptr<const Permutation> permutation_;
};

// torch.randperm(count, generator = torch.Generator().manual_seed(seed)). `count`: 0 to kMostSamples.
std::vector<uint32_t> torch_permutation(int64_t count, uint64_t seed);

}  // namespace trivet::data
