// Epochs in steps, which are known when the data is.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/curriculum_sampler.h"
#include "data/sample_source.h"
#include "data/sampler.h"
#include "engine/config/config.h"
#include "engine/plan.h"

namespace trivet::trainer {

// The sampler that the config asks for. `train`: the training data. `admissions`: of its curriculum, or null.
std::shared_ptr<const data::Sampler> make_sampler(const Config& config, const data::SampleSource& train, const Plan& plan,
                                                  const data::Admissions* admissions = nullptr);

// The number of the last step of the run.
int64_t total_steps(const TrainingConfig& training, const data::Sampler& sampler);

// Sets what the learning-rate schedule needs in steps and the config gives in epochs: its end and the warm-up of
// optimizer.lr_scaling.
void set_steps_of_schedule(Config& config, const data::Sampler& sampler);

// "3 of 1,234 samples, the first ends with step 78; the run with step 232"; empty if the config has no key that counts epochs.
std::string describe_epochs(const Config& config, int64_t samples, const data::Sampler& sampler);

}  // namespace trivet::trainer
