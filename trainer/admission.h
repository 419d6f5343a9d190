// Computes which samples a curriculum admits from which step on: those that are at most as difficult as the step, by each of
// its metrics. Difficulties of steps never fall, so a sample that was admitted once stays admitted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/curriculum_sampler.h"
#include "data/sample_source.h"
#include "engine/config/curriculum_config.h"

namespace trivet {
struct Config;
}

namespace trivet::trainer {

// A metric with the difficulty of each sample.
struct MeasuredMetric {
  const SampleMetric& metric;
  std::vector<int64_t> difficulties;
};

//   value        a step of difficulty d admits the samples whose difficulty is at most d
//   percentile   it admits the first n d / max_difficulty of the n samples, rounded down, in the order of their difficulties;
//                of equal difficulties, those with lower numbers come first
data::Admissions admissions(const std::vector<MeasuredMetric>& metrics);

// Measures the samples of a run. Null if the config does not choose samples. Throws ConfigError if the first step admits none.
std::shared_ptr<const data::Admissions> admit(const Config& config, const data::SampleSource& samples);

// "vocabularyrarity percentile 1 of 100 in step 1, 100 from step 900 on: 12 of 1200 samples in step 1, all from step 900 on"
std::string describe_admissions(const Config& config, const data::Admissions& admissions);

}  // namespace trivet::trainer
