#include "trainer/batches.h"

#include "engine/config/curriculum.h"
#include "trainer/epochs.h"

namespace trivet::trainer {

Batches::Batches(const Config& config, std::shared_ptr<const data::SampleSource> samples,
                 std::shared_ptr<const data::Sampler> sampler, const Plan& plan, int rank)
    : samples_(std::move(samples)),
      sampler_(std::move(sampler)),
      loader_(samples_, sampler_, plan.batch_layout(rank)),
      total_steps_(trainer::total_steps(config.training, *sampler_)),
      curriculum_(config.curriculum) {}

void Batches::replace(std::shared_ptr<const data::SampleSource> samples, std::shared_ptr<const data::Sampler> sampler) {
  samples_ = std::move(samples);
  sampler_ = std::move(sampler);
  loader_ = data::MicrobatchLoader(samples_, sampler_, layout());
}

void Batches::cut(int64_t step, data::HostMicrobatch& microbatch) const {
  if (curriculum_.enabled) data::cut_sequences(microbatch, difficulty_at(curriculum_, step + 1));
}

std::vector<Microbatch> Batches::fill(int64_t step) {
  std::vector<Microbatch> views;
  microbatches_.resize(layout().accumulation);
  for (size_t m = 0; m < microbatches_.size(); ++m) {
    loader_.fill(step, static_cast<int64_t>(m), microbatches_[m]);
    cut(step, microbatches_[m]);
    views.push_back(microbatches_[m].view);
  }
  return views;
}

Microbatch Batches::microbatch(int64_t step, int64_t number) {
  loader_.fill_numbered(step, number, one_);
  cut(step, one_);
  return one_.view;
}

}  // namespace trivet::trainer
