// Samples of made-up values for measurements that need no data: integers below the limits of the spec, numbers in [-1, 1).
#pragma once

#include <vector>

#include "data/microbatch_loader.h"

namespace trivet::data {

class MadeUpSource final : public SampleSource {
 public:
  MadeUpSource(const SampleSpec& spec, int64_t samples) : spec_(spec), samples_(samples) {}

  const SampleSpec& spec() const override { return spec_; }
  int64_t samples() const override { return samples_; }
  void fill(int64_t sample, int64_t epoch, std::span<std::byte> input, std::span<int32_t> targets) const override;
  std::string digest() const override { return "made up"; }

 private:
  SampleSpec spec_;
  int64_t samples_;
};

// This rank's microbatches of one step.
std::vector<HostMicrobatch> made_up_step(const SampleSpec& spec, const BatchLayout& layout);

}  // namespace trivet::data
