#include "engine/config/sample_curriculum.h"

#include <fmt/format.h>

#include "engine/config/config.h"
#include "engine/config/curriculum.h"
#include "engine/config/load.h"
#include "engine/config/refuse.h"
#include "model/family.h"

namespace trivet {
namespace {

using config::refuse;
using config::section_of_metric;

constexpr const char* kSampling = "data_efficiency.data_sampling.curriculum_learning";
constexpr const char* kEnabled = "data_efficiency.data_sampling.curriculum_learning.enabled";

// Checks whether a section says anything that is no default.
bool is_asked_for(CurriculumConfig schedule) {
  schedule.enabled = false;
  return !(schedule == CurriculumConfig{});
}
bool is_asked_for(const SampleMetric& metric, const SampleMetric& otherwise) {
  return is_asked_for(metric.schedule) || metric.type != otherwise.type || metric.clustering != otherwise.clustering;
}

void check_percentiles(const Config& config, const std::string& section, const SampleMetric& metric) {
  if (metric.type == DifficultyType::Percentile && metric.schedule.max_difficulty > kMostPercentiles)
    refuse(config, section + ".max_difficulty",
           fmt::format("{} is too fine a scale of percentiles; use 100, or at most {}", metric.schedule.max_difficulty,
                       kMostPercentiles));
}

void check_data(const Config& config) {
  const DataConfig& data = config.data;
  const auto refuse_with = [&](const char* key, const std::string& value, const std::string& why) {
    refuse(config, key,
           fmt::format("{} is not accepted with {}.curriculum_metrics that choose samples: {}", value, kSampling, why));
  };
  if (data.grows)
    refuse_with("data.grows", "true",
                "the difficulty of all samples is measured before the first step; use false, or seqlen_truncate as the metric");
  if (!data.sources.empty())
    refuse_with("data.sources", "a mixture",
                "its weights and the difficulties would both say which sample comes next; name one source in data.train");
  if (data.sampler == SamplerKind::PyTorch)
    refuse_with("data.sampler", "\"pytorch\"", "its order has no difficulties; use \"trivet\"");
}

void check_length(const Config& config) {
  const model::Objective objective = config.model.objective;
  const bool is_stream = config.data.packing == Packing::Stream ||
                         (config.data.packing == Packing::Auto && objective == model::Objective::NextToken);
  const bool has_rows_of_one_length = is_stream && objective != model::Objective::Dpo;
  if (config.sample_curriculum.length.schedule.enabled && has_rows_of_one_length)
    refuse(config, section_of_metric("seqlen") + ".clustering_type",
           fmt::format("\"schedule_based\" chooses samples by their length, but those of a stream have {} tokens each; use "
                       "\"single_cluster\", which cuts them, or data.packing \"single\", \"whole\" or \"isolated\"",
                       config.model.sequence_length));
}

}  // namespace

std::array<NamedMetric, 2> sample_metrics(const SampleCurriculum& curriculum) {
  return {NamedMetric{"seqlen", curriculum.length}, NamedMetric{"vocabularyrarity", curriculum.rarity}};
}

std::string config::section_of_metric(const std::string& name) {
  return fmt::format("{}.curriculum_metrics.{}", kSampling, name);
}

std::string config::section_of_lengths(const Config& config) {
  if (config.sample_curriculum.length_cuts) return section_of_metric("seqlen");
  const std::string truncate = section_of_metric("seqlen_truncate");
  return is_given(config, truncate) && !is_given(config, "curriculum_learning") ? truncate : "curriculum_learning";
}

std::string config::switch_of_lengths(const Config& config) {
  const std::string own = "curriculum_learning.enabled";
  return is_given(config, kEnabled) && !is_given(config, own) ? kEnabled : own;
}

void config::settle_metrics(Config& config) {
  SampleCurriculum& chosen = config.sample_curriculum;
  if (!chosen.enabled) return;
  const bool asks_for_lengths = is_asked_for(chosen.length, SampleCurriculum{}.length);
  const bool cuts_already = is_asked_for(config.curriculum);
  const std::string seqlen = section_of_metric("seqlen");
  if (asks_for_lengths && chosen.length.clustering == Clustering::SingleCluster) {
    CurriculumConfig& schedule = chosen.length.schedule;
    schedule.enabled = config.curriculum.enabled;
    if (cuts_already && !(schedule == config.curriculum))
      refuse(config, seqlen + ".min_difficulty",
             "another section says how sequences are cut, too: curriculum_learning or seqlen_truncate; keep one of them");
    if (chosen.length.type == DifficultyType::Percentile)
      refuse(config, seqlen + ".difficulty_type",
             "\"percentile\" is not accepted with clustering_type \"single_cluster\", which cuts sequences to a number of "
             "tokens; use \"value\", or \"schedule_based\", which chooses samples");
    config.curriculum = schedule;
    config.curriculum.enabled = true;
    chosen.length = SampleCurriculum{}.length;
    chosen.length_cuts = true;
  } else {
    chosen.length.schedule.enabled = asks_for_lengths;
    config.curriculum.enabled = config.curriculum.enabled || cuts_already;
  }
  chosen.rarity.schedule.enabled = is_asked_for(chosen.rarity, SampleCurriculum{}.rarity);
  chosen.enabled = chosen.length.schedule.enabled || chosen.rarity.schedule.enabled;
  if (!chosen.enabled && !config.curriculum.enabled)
    refuse(config, kEnabled,
           "true needs the numbers of a metric in curriculum_metrics: \"seqlen\", \"seqlen_truncate\" or \"vocabularyrarity\"; "
           "give them, or use false");
}

void config::check_sample_curriculum(const Config& config) {
  if (!config.sample_curriculum.enabled) return;
  if (model::family_of(config.model.type).reads_images)
    refuse(config, kEnabled, "true needs a model that reads sequences of tokens; use false");
  for (const auto& [name, metric] : sample_metrics(config.sample_curriculum)) {
    if (!metric.schedule.enabled) continue;
    check_difficulties(config, metric.schedule, section_of_metric(name));
    check_percentiles(config, section_of_metric(name), metric);
  }
  check_data(config);
  check_length(config);
}

std::string config::describe_sample_curriculum(const Config& config) {
  if (!config.sample_curriculum.enabled) return "";
  std::string text;
  for (const auto& [name, metric] : sample_metrics(config.sample_curriculum)) {
    const CurriculumConfig& schedule = metric.schedule;
    if (!schedule.enabled) continue;
    const int64_t last = steps_of_new_difficulty(schedule).back();
    const std::string scale = metric.type == DifficultyType::Percentile ? fmt::format(" of {}", schedule.max_difficulty) : "";
    text +=
        fmt::format("{}{} {} {}{} in step 1", text.empty() ? "" : " and ", name,
                    metric.type == DifficultyType::Percentile ? "percentile" : "at most", difficulty_at(schedule, 1), scale);
    if (last > 1) text += fmt::format(", {} from step {} on", difficulty_at(schedule, last), last);
  }
  return text;
}

}  // namespace trivet
