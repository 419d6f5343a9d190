#include "engine/trainer/batches.h"

#include <cmath>

#include "engine/config/config.h"

namespace trivet::trainer {
namespace {

int64_t last_step(const TrainingConfig& training, int64_t samples, int64_t train_batch_size) {
  if (training.steps > 0) return training.steps;
  const double all_samples = training.epochs * static_cast<double>(samples);
  return static_cast<int64_t>(std::ceil(all_samples / static_cast<double>(train_batch_size)));
}

}  // namespace

Batches::Batches(const Config& config, std::shared_ptr<const data::SampleSource> samples, const Plan& plan, int rank)
    : samples_(std::move(samples)),
      order_(samples_->samples(), static_cast<uint64_t>(config.training.seed), config.data.shuffle),
      loader_(samples_, order_, plan.batch_layout(rank)),
      total_steps_(last_step(config.training, order_.samples(), plan.batch.train_batch_size)) {}

std::vector<Microbatch> Batches::fill(int64_t step) {
  std::vector<Microbatch> views;
  microbatches_.resize(layout().accumulation);
  for (size_t m = 0; m < microbatches_.size(); ++m) {
    loader_.fill(step, static_cast<int64_t>(m), microbatches_[m]);
    views.push_back(microbatches_[m].view);
  }
  return views;
}

Microbatch Batches::microbatch(int64_t step, int64_t number) {
  loader_.fill_numbered(step, number, one_);
  return one_.view;
}

}  // namespace trivet::trainer
