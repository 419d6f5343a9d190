// The microbatches of a run: which samples this rank trains on in each step, and how many steps there are.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/microbatch_loader.h"
#include "engine/config/curriculum_config.h"
#include "engine/plan.h"

namespace trivet {
struct Config;
}

namespace trivet::trainer {

class Batches {
 public:
  Batches(const Config& config, std::shared_ptr<const data::SampleSource> samples, std::shared_ptr<const data::Sampler> sampler,
          const Plan& plan, int rank);

  const BatchLayout& layout() const { return loader_.layout(); }
  const data::Sampler& sampler() const { return *sampler_; }
  int64_t samples() const { return samples_->samples(); }  // in the training data
  // Goes on with these samples, in this order. Earlier steps must have read the same.
  void replace(std::shared_ptr<const data::SampleSource> samples, std::shared_ptr<const data::Sampler> sampler);
  // The number of the last step, also if the config says how many epochs.
  int64_t total_steps() const { return total_steps_; }
  // Returns the microbatches of a step (steps count from 0); they are valid until the next call.
  std::vector<Microbatch> fill(int64_t step);
  // Returns one microbatch of a step by its number over all ranks; it is valid until the next call of this function.
  Microbatch microbatch(int64_t step, int64_t number);

 private:
  void cut(int64_t step, data::HostMicrobatch& microbatch) const;

  std::shared_ptr<const data::SampleSource> samples_;
  std::shared_ptr<const data::Sampler> sampler_;
  data::MicrobatchLoader loader_;
  int64_t total_steps_;
  CurriculumConfig curriculum_;
  std::vector<data::HostMicrobatch> microbatches_;
  data::HostMicrobatch one_;
};

}  // namespace trivet::trainer
