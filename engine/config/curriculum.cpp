#include "engine/config/curriculum.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/rising_number.h"
#include "engine/config/config.h"
#include "engine/config/refuse.h"
#include "engine/config/sample_curriculum.h"

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

// Refuses keys of one section.
class Section {
 public:
  Section(const Config& config, const CurriculumConfig& curriculum, std::string section)
      : config_(config), curriculum_(curriculum), section_(std::move(section)) {}

  void check() const {
    require(curriculum_.min_difficulty, "min_difficulty");
    require(curriculum_.max_difficulty, "max_difficulty");
    if (curriculum_.min_difficulty > curriculum_.max_difficulty)
      refuse_key("min_difficulty",
                 fmt::format("{} is more than max_difficulty {}", curriculum_.min_difficulty, curriculum_.max_difficulty));
    if (curriculum_.schedule == DifficultySchedule::FixedDiscrete)
      check_list();
    else
      check_steps();
  }

 private:
  [[noreturn]] void refuse_key(const std::string& key, const std::string& what) const {
    refuse(config_, section_ + "." + key, what);
  }
  void require(int64_t value, const std::string& key) const {
    if (value < 1) refuse_key(key, "is not given; the curriculum needs it");
  }

  void check_steps() const {
    require(curriculum_.total_steps, "schedule_config.total_curriculum_step");
    require(curriculum_.difficulty_step, "schedule_config.difficulty_step");
    if (curriculum_.schedule == DifficultySchedule::FixedRoot) require(curriculum_.root_degree, "schedule_config.root_degree");
    if (difficulty_at(curriculum_, 1) < 1)
      refuse_key("schedule_config.difficulty_step",
                 fmt::format("{} leaves the first step the difficulty 0, because min_difficulty {} is rounded down to a "
                             "multiple of it; use at most {}",
                             curriculum_.difficulty_step, curriculum_.min_difficulty, curriculum_.min_difficulty));
  }

  void check_list() const {
    const std::vector<int64_t>&all = curriculum_.difficulties, &steps = curriculum_.last_steps;
    const std::string difficulty = "schedule_config.difficulty", max_step = "schedule_config.max_step";
    if (all.empty()) refuse_key(difficulty, "is not given; list the difficulties, ascending");
    if (steps.size() + 1 != all.size())
      refuse_key(max_step, fmt::format("has {} steps for {} difficulties; give the last step of each but the last one",
                                       steps.size(), all.size()));
    if (!std::ranges::is_sorted(all) || all.front() < curriculum_.min_difficulty || all.back() > curriculum_.max_difficulty)
      refuse_key(difficulty,
                 fmt::format("{} is not accepted; use ascending numbers from min_difficulty {} to max_difficulty {}",
                             config::integers_json(all), curriculum_.min_difficulty, curriculum_.max_difficulty));
    if (!std::ranges::is_sorted(steps) || (!steps.empty() && steps.front() < 1))
      refuse_key(max_step, fmt::format("{} is not accepted; use ascending numbers from 1", config::integers_json(steps)));
  }

  const Config& config_;
  const CurriculumConfig& curriculum_;
  std::string section_;
};

// Ranks that share the tokens of a sequence need equal parts, and so do leaves of sums.
void check_parts(const Config& config) {
  const bool by_tensor_ranks = config.parallel.tensor > 1 && config.parallel.sequence_parallel;
  const int64_t context = config.parallel.context, tensor = by_tensor_ranks ? config.parallel.tensor : 1;
  const int64_t ranks = config.fixes_token_sums() ? config.parallel.context_grain : tensor * context;
  const std::string of =
      config.fixes_token_sums() ? "parts of parallel.context_grain cannot share evenly"
      : !by_tensor_ranks        ? "ranks of parallel.context cannot share evenly"
      : context == 1            ? "ranks of parallel.tensor cannot share evenly, as parallel.sequence_parallel requires"
                     : "ranks of parallel.context and parallel.tensor cannot share evenly, as parallel.sequence_parallel "
                       "requires";
  if (ranks == 1) return;
  for (const int64_t step : steps_of_new_difficulty(config.curriculum))
    if (const int64_t length = difficulty_at(config.curriculum, step); length % ranks != 0)
      refuse(config, config::switch_of_lengths(config),
             fmt::format("true gives step {} sequences of {} tokens, which the {} {}; use difficulties that are multiples of "
                         "{}",
                         step, length, ranks, of, ranks));
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
  if (longest == 0) refuse(config, switch_of_lengths(config), "true needs a model that reads sequences of tokens; use false");
  const std::string section = section_of_lengths(config);
  if (curriculum.max_difficulty > longest)
    refuse(config, section + ".max_difficulty",
           fmt::format("{} is more than model.sequence_length {}; use at most that", curriculum.max_difficulty, longest));
  check_difficulties(config, curriculum, section);
  check_parts(config);
}

void config::check_difficulties(const Config& config, const CurriculumConfig& curriculum, const std::string& section) {
  Section(config, curriculum, section).check();
}

std::string config::integers_json(const std::vector<int64_t>& values) { return fmt::format("[{}]", fmt::join(values, ", ")); }

}  // namespace trivet
