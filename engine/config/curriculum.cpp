#include "engine/config/curriculum.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/rising_number.h"
#include "engine/config/config.h"
#include "engine/config/refuse.h"

namespace trivet {
namespace {

using config::refuse;

int64_t difficulty_by_root(const CurriculumConfig& curriculum, int64_t step) {
  const double degree = curriculum.schedule == DifficultySchedule::FixedRoot ? static_cast<double>(curriculum.root_degree) : 1;
  return RisingNumber{.least = curriculum.min_difficulty,
                      .most = curriculum.max_difficulty,
                      .steps = curriculum.total_steps,
                      .multiple = curriculum.difficulty_step,
                      .degree = degree}
      .at(step);
}

int64_t difficulty_from_list(const CurriculumConfig& curriculum, int64_t step) {
  const auto place = std::ranges::lower_bound(curriculum.last_steps, step) - curriculum.last_steps.begin();
  return curriculum.difficulties[place];
}

void require(const Config& config, int64_t value, const char* key) {
  if (value < 1) refuse(config, key, "is not given; the curriculum needs it");
}

void check_steps(const Config& config) {
  const CurriculumConfig& curriculum = config.curriculum;
  require(config, curriculum.total_steps, "curriculum_learning.schedule_config.total_curriculum_step");
  require(config, curriculum.difficulty_step, "curriculum_learning.schedule_config.difficulty_step");
  if (curriculum.schedule == DifficultySchedule::FixedRoot)
    require(config, curriculum.root_degree, "curriculum_learning.schedule_config.root_degree");
  if (difficulty_at(curriculum, 1) < 1)
    refuse(config, "curriculum_learning.schedule_config.difficulty_step",
           fmt::format("{} leaves no token of the first sequences, which have at most {} and are cut to a multiple of it; use "
                       "at most {}",
                       curriculum.difficulty_step, curriculum.min_difficulty, curriculum.min_difficulty));
}

void check_list(const Config& config) {
  const CurriculumConfig& curriculum = config.curriculum;
  const std::string difficulty = "curriculum_learning.schedule_config.difficulty",
                    max_step = "curriculum_learning.schedule_config.max_step";
  const std::vector<int64_t>&all = curriculum.difficulties, &steps = curriculum.last_steps;
  if (all.empty()) refuse(config, difficulty, "is not given; list the difficulties, ascending");
  if (steps.size() + 1 != all.size())
    refuse(
        config, max_step,
        fmt::format("has {} steps for {} difficulties; give the last step of each but the last one", steps.size(), all.size()));
  if (!std::ranges::is_sorted(all) || all.front() < curriculum.min_difficulty || all.back() > curriculum.max_difficulty)
    refuse(config, difficulty,
           fmt::format("{} is not accepted; use ascending numbers from min_difficulty {} to max_difficulty {}",
                       config::integers_json(all), curriculum.min_difficulty, curriculum.max_difficulty));
  if (!std::ranges::is_sorted(steps) || (!steps.empty() && steps.front() < 1))
    refuse(config, max_step, fmt::format("{} is not accepted; use ascending numbers from 1", config::integers_json(steps)));
}

// Tensor ranks that share the tokens of a sequence need equal parts.
void check_parts(const Config& config) {
  const int64_t ranks = config.parallel.tensor;
  if (ranks == 1 || !config.parallel.sequence_parallel) return;
  for (const int64_t step : steps_of_new_difficulty(config.curriculum))
    if (const int64_t length = difficulty_at(config.curriculum, step); length % ranks != 0)
      refuse(
          config, "curriculum_learning.enabled",
          fmt::format("true gives step {} sequences of {} tokens, which the {} ranks of parallel.tensor cannot share evenly, "
                      "as parallel.sequence_parallel requires; use difficulties that are multiples of {}",
                      step, length, ranks, ranks));
}

}  // namespace

int64_t difficulty_at(const CurriculumConfig& curriculum, int64_t step) {
  return curriculum.schedule == DifficultySchedule::FixedDiscrete ? difficulty_from_list(curriculum, step)
                                                                  : difficulty_by_root(curriculum, step);
}

std::vector<int64_t> steps_of_new_difficulty(const CurriculumConfig& curriculum) {
  return steps_of_change(1, [&](int64_t step) { return difficulty_at(curriculum, step); });
}

SampleSpec sample_of_step(const CurriculumConfig& curriculum, const SampleSpec& sample, int64_t step) {
  return curriculum.enabled ? sample.cut_to(difficulty_at(curriculum, step + 1)) : sample;
}

SampleSpec longest_sample(const CurriculumConfig& curriculum, const SampleSpec& sample) {
  return curriculum.enabled ? sample_of_step(curriculum, sample, steps_of_new_difficulty(curriculum).back() - 1) : sample;
}

void use_longest_samples(CurriculumConfig& curriculum) {
  if (!curriculum.enabled) return;
  const int64_t longest = difficulty_at(curriculum, steps_of_new_difficulty(curriculum).back());
  curriculum = {.enabled = true,
                .min_difficulty = longest,
                .max_difficulty = longest,
                .schedule = DifficultySchedule::FixedDiscrete,
                .difficulties = {longest},
                .last_steps = {}};
}

void config::check_curriculum(const Config& config, int64_t longest) {
  const CurriculumConfig& curriculum = config.curriculum;
  if (!curriculum.enabled) return;
  if (longest == 0)
    refuse(config, "curriculum_learning.enabled", "true needs a model that reads sequences of tokens; use false");
  require(config, curriculum.min_difficulty, "curriculum_learning.min_difficulty");
  require(config, curriculum.max_difficulty, "curriculum_learning.max_difficulty");
  if (curriculum.min_difficulty > curriculum.max_difficulty)
    refuse(config, "curriculum_learning.min_difficulty",
           fmt::format("{} is more than max_difficulty {}", curriculum.min_difficulty, curriculum.max_difficulty));
  if (curriculum.max_difficulty > longest)
    refuse(config, "curriculum_learning.max_difficulty",
           fmt::format("{} is more than model.sequence_length {}; use at most that", curriculum.max_difficulty, longest));
  if (curriculum.schedule == DifficultySchedule::FixedDiscrete)
    check_list(config);
  else
    check_steps(config);
  check_parts(config);
}

std::string config::integers_json(const std::vector<int64_t>& values) { return fmt::format("[{}]", fmt::join(values, ", ")); }

}  // namespace trivet
