#include "data/curriculum_sampler.h"

namespace trivet::data {
namespace {

std::vector<AdmittedOrder::Stage> stages_of(const Admissions& admissions, const BatchLayout& layout) {
  std::vector<AdmittedOrder::Stage> stages;
  for (const AdmittingStep& step : admissions.steps) stages.push_back({step.step * layout.global_batch(), step.samples});
  return stages;
}

}  // namespace

CurriculumSampler::CurriculumSampler(const Admissions& admissions, uint64_t seed, bool shuffle, const BatchLayout& layout)
    : samples_(admissions.all), layout_(layout), order_(admissions.samples, stages_of(admissions, layout), seed, shuffle) {}

Visit CurriculumSampler::visit(int64_t step, int64_t microbatch, int64_t row) const {
  const AdmittedOrder::Choice choice = order_.at(step * layout_.global_batch() + microbatch * layout_.micro_batch + row);
  return {choice.sample, choice.round};
}

int64_t CurriculumSampler::steps_of(double epochs) const {
  return whole_steps(epochs * static_cast<double>(samples_) / static_cast<double>(layout_.global_batch()));
}

int64_t CurriculumSampler::epochs_in(int64_t steps) const { return steps * layout_.global_batch() / samples_; }

}  // namespace trivet::data
