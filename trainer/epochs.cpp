#include "trainer/epochs.h"

#include <fmt/format.h>

#include "data/curriculum_sampler.h"
#include "report/monitor/number_text.h"

namespace trivet::trainer {

std::shared_ptr<const data::Sampler> make_sampler(const Config& config, const data::SampleSource& train, const Plan& plan,
                                                  const data::Admissions* admissions) {
  const auto seed = static_cast<uint64_t>(config.training.seed);
  const BatchLayout layout = plan.batch_layout(0);
  if (admissions) return std::make_shared<data::CurriculumSampler>(*admissions, seed, config.data.shuffle, layout);
  if (config.data.grows) return std::make_shared<data::EndlessSampler>(train.epoch_sizes(), seed, config.data.shuffle, layout);
  return data::make_sampler(config.data, train.sizes_of_sources(), seed, layout, config.source);
}

int64_t total_steps(const TrainingConfig& training, const data::Sampler& sampler) {
  return training.steps > 0 ? training.steps : sampler.steps_of(training.epochs);
}

void set_steps_of_schedule(Config& config, const data::Sampler& sampler) {
  if (config.scheduler.total_num_steps == 0) config.scheduler.total_num_steps = total_steps(config.training, sampler);
  if (config.lr_scaling != LrScaling::None) config.lr_scaling_warmup_steps = sampler.steps_of(config.lr_scaling_warmup_epochs);
}

std::string describe_epochs(const Config& config, int64_t samples, const data::Sampler& sampler) {
  const bool counts = config.training.epochs > 0 || config.training.evaluate_every_epochs > 0 ||
                      config.checkpoint.every_epochs > 0 || config.data.sampler == SamplerKind::PyTorch;
  if (!counts) return "";
  const std::string how_many = config.training.epochs > 0 ? fmt::format("{:.6g} of ", config.training.epochs) : "";
  return fmt::format("{}{} samples{}, the first ends with step {}; the run with step {}", how_many,
                     monitor::with_commas(samples), config.data.grows ? " until more files arrive" : "",
                     monitor::with_commas(sampler.steps_of(1)), monitor::with_commas(total_steps(config.training, sampler)));
}

}  // namespace trivet::trainer
