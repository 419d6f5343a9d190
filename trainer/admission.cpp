#include "trainer/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "data/difficulty.h"
#include "engine/config/config.h"
#include "engine/config/curriculum.h"
#include "engine/config/refuse.h"
#include "engine/config/sample_curriculum.h"

namespace trivet::trainer {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// The numbers of samples, the easiest first.
std::vector<int64_t> from_the_easiest(const std::vector<int64_t>& difficulties) {
  std::vector<int64_t> order(difficulties.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(order, {}, [&](int64_t sample) { return difficulties[sample]; });
  return order;
}

int64_t samples_of_percentile(int64_t samples, int64_t percentile, int64_t most) {
  return samples / most * percentile + samples % most * percentile / most;
}

// The step that admits each sample, counted from 0.
std::vector<int64_t> first_steps(const MeasuredMetric& measured) {
  const SampleMetric& metric = measured.metric;
  const std::vector<int64_t> order = from_the_easiest(measured.difficulties);
  const auto samples = static_cast<int64_t>(order.size());
  std::vector<int64_t> first(order.size(), kNever);
  int64_t admitted = 0;
  for (const int64_t step : steps_of_new_difficulty(metric.schedule)) {
    const int64_t difficulty = difficulty_at(metric.schedule, step);
    if (metric.type == DifficultyType::Percentile) {
      const int64_t end = samples_of_percentile(samples, difficulty, metric.schedule.max_difficulty);
      while (admitted < end) first[order[admitted++]] = step - 1;
    } else {
      while (admitted < samples && measured.difficulties[order[admitted]] <= difficulty) first[order[admitted++]] = step - 1;
    }
  }
  return first;
}

// Says why the first step has no sample.
[[noreturn]] void refuse_first_step(const Config& config, const std::vector<MeasuredMetric>& metrics) {
  const auto range = [](const MeasuredMetric& measured) {
    return fmt::format("{} to {}", std::ranges::min(measured.difficulties), std::ranges::max(measured.difficulties));
  };
  if (metrics.size() > 1)
    config::refuse(
        config, config::section_of_metric("vocabularyrarity") + ".min_difficulty",
        fmt::format("{} leaves no sample for step 1, together with {} of seqlen: the {} samples have a seqlen of {} and "
                    "a vocabularyrarity of {}; use larger ones",
                    metrics[1].metric.schedule.min_difficulty, metrics[0].metric.schedule.min_difficulty,
                    metrics[0].difficulties.size(), range(metrics[0]), range(metrics[1])));
  const MeasuredMetric& only = metrics.front();
  const auto samples = static_cast<int64_t>(only.difficulties.size());
  const bool is_length = config.sample_curriculum.length.schedule.enabled;
  const CurriculumConfig& schedule = only.metric.schedule;
  const bool by_list = schedule.schedule == DifficultySchedule::FixedDiscrete;
  const bool by_percentile = only.metric.type == DifficultyType::Percentile;
  const int64_t first = difficulty_at(schedule, 1), most = schedule.max_difficulty;
  const int64_t multiple = by_list ? 1 : std::max<int64_t>(1, schedule.difficulty_step);
  const int64_t least = by_percentile ? (most + samples - 1) / samples : std::ranges::min(only.difficulties);
  const int64_t needed = (least + multiple - 1) / multiple * multiple;
  const std::string why =
      by_percentile ? fmt::format("percentile {} of {} is less than one of {} samples", first, most, samples)
                    : fmt::format("its difficulty is {}, and those of the {} samples are from {}", first, samples, range(only));
  config::refuse(
      config,
      fmt::format("{}.{}", config::section_of_metric(is_length ? "seqlen" : "vocabularyrarity"),
                  by_list ? "schedule_config.difficulty" : "min_difficulty"),
      fmt::format("{} leaves no sample for step 1: {}; use at least {}{}",
                  by_list ? "its first number" : fmt::format("{}", schedule.min_difficulty), why, needed,
                  needed > most ? fmt::format(", and a max_difficulty that is not less than it, as {} is", most) : ""));
}

}  // namespace

data::Admissions admissions(const std::vector<MeasuredMetric>& metrics) {
  data::Admissions result;
  std::vector<int64_t> first;
  for (const MeasuredMetric& measured : metrics) {
    const std::vector<int64_t> steps = first_steps(measured);
    if (first.empty()) first.resize(steps.size(), 0);
    for (size_t sample = 0; sample < steps.size(); ++sample) first[sample] = std::max(first[sample], steps[sample]);
  }
  result.all = static_cast<int64_t>(first.size());
  for (const int64_t sample : from_the_easiest(first)) {
    if (first[sample] == kNever) break;
    result.samples.push_back(sample);
    if (result.steps.empty() || result.steps.back().step != first[sample]) result.steps.push_back({first[sample], 0});
    result.steps.back().samples = static_cast<int64_t>(result.samples.size());
  }
  return result;
}

std::shared_ptr<const data::Admissions> admit(const Config& config, const data::SampleSource& samples) {
  if (!config.sample_curriculum.enabled) return nullptr;
  const SampleCurriculum& curriculum = config.sample_curriculum;
  std::vector<MeasuredMetric> metrics;
  if (curriculum.length.schedule.enabled) metrics.push_back({curriculum.length, data::lengths_of(samples)});
  if (curriculum.rarity.schedule.enabled) metrics.push_back({curriculum.rarity, data::rarities_of(samples)});
  auto admitted = std::make_shared<data::Admissions>(admissions(metrics));
  if (admitted->steps.empty() || admitted->steps.front().step > 0) refuse_first_step(config, metrics);
  return admitted;
}

std::string describe_admissions(const Config& config, const data::Admissions& admissions) {
  const data::AdmittingStep &first = admissions.steps.front(), &last = admissions.steps.back();
  std::string text =
      fmt::format("{}: {} of {} samples in step 1", config::describe_sample_curriculum(config), first.samples, admissions.all);
  if (last.step > 0)
    text += fmt::format(", {} from step {} on", last.samples == admissions.all ? "all" : fmt::format("{}", last.samples),
                        last.step + 1);
  return text;
}

}  // namespace trivet::trainer
