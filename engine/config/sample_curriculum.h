// Easy samples first: DeepSpeed's curriculum whose metrics choose the samples of a step.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "engine/config/curriculum_config.h"

namespace trivet {

struct Config;

// The metrics that choose samples, in the order in which messages name them.
struct NamedMetric {
  const char* name;  // as in curriculum_metrics
  const SampleMetric& metric;
};
std::array<NamedMetric, 2> sample_metrics(const SampleCurriculum& curriculum);

// The largest max_difficulty of percentiles, which need not be of 100.
inline constexpr int64_t kMostPercentiles = 1'000'000;

namespace config {

// "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.NAME"
std::string section_of_metric(const std::string& name);
// Where the config has the schedule of Config::curriculum.
std::string section_of_lengths(const Config& config);
// The key that switches it on.
std::string switch_of_lengths(const Config& config);

// Decides what the metrics of a config that was just read do: those that cut samples become Config::curriculum, those that
// have no value are not used. Throws ConfigError if two sections say how sequences are cut, or none says anything.
void settle_metrics(Config& config);

void check_sample_curriculum(const Config& config);

// "vocabularyrarity percentile 1 of 100 in step 1, 100 from step 900 on"; empty if samples are not chosen.
std::string describe_sample_curriculum(const Config& config);

}  // namespace config
}  // namespace trivet
