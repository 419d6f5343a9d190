// Tests the difficulty of each step against tables made by DeepSpeed's formula, and how its two sections give it.
#include "engine/config/curriculum.h"

#include "tests/config/support.h"

namespace trivet {
namespace {

using Numbers = std::vector<int64_t>;

Numbers difficulties(const CurriculumConfig& curriculum, const Numbers& steps) {
  Numbers all;
  for (const int64_t step : steps) all.push_back(difficulty_at(curriculum, step));
  return all;
}

// floor((t / total) ** (1 / degree) * (max - min) + min), less its remainder by difficulty_step, and at most max, in Python.
TEST(Curriculum, DifficultiesAreThoseOfTheFormula) {
  CurriculumConfig linear{.enabled = true, .min_difficulty = 8, .max_difficulty = 64, .total_steps = 10, .difficulty_step = 8};
  const Numbers steps{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
  EXPECT_EQ(difficulties(linear, steps), (Numbers{8, 16, 24, 24, 32, 40, 40, 48, 56, 64, 64, 64, 64}));
  CurriculumConfig root = linear;
  root.schedule = DifficultySchedule::FixedRoot;
  root.root_degree = 2;
  EXPECT_EQ(difficulties(root, steps), (Numbers{24, 32, 32, 40, 40, 48, 48, 56, 56, 64, 64, 64, 64}));
  linear.root_degree = 2;  // of another schedule
  EXPECT_EQ(difficulty_at(linear, 1), 8);
  linear = {.enabled = true, .min_difficulty = 64, .max_difficulty = 1024, .total_steps = 15000, .difficulty_step = 8};
  EXPECT_EQ(difficulties(linear, {1, 100, 1000, 7500, 14999, 15000, 20000}), (Numbers{64, 64, 128, 544, 1016, 1024, 1024}));
  root.root_degree = 3, root.min_difficulty = 80, root.max_difficulty = 1024, root.total_steps = 2000;
  EXPECT_EQ(difficulties(root, {1, 2, 10, 100, 1999, 2000, 20000}), (Numbers{152, 168, 240, 424, 1016, 1024, 1024}));
}

TEST(Curriculum, AMaximumThatIsNoMultipleIsReachedLater) {
  const CurriculumConfig uneven{
      .enabled = true, .min_difficulty = 10, .max_difficulty = 50, .total_steps = 7, .difficulty_step = 8};
  EXPECT_EQ(difficulties(uneven, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1'000'000}),
            (Numbers{8, 16, 24, 32, 32, 40, 48, 48, 50, 50, 50}));
  EXPECT_EQ(steps_of_new_difficulty(uneven), (Numbers{1, 2, 3, 4, 6, 7, 9}));
  const CurriculumConfig never{
      .enabled = true, .min_difficulty = 50, .max_difficulty = 50, .total_steps = 7, .difficulty_step = 8};
  EXPECT_EQ(steps_of_new_difficulty(never), Numbers{1});
  EXPECT_EQ(difficulty_at(never, 1'000'000), 48);
}

TEST(Curriculum, AListNamesTheLastStepOfEachDifficulty) {
  const CurriculumConfig listed{.enabled = true,
                                .min_difficulty = 1,
                                .max_difficulty = 9,
                                .schedule = DifficultySchedule::FixedDiscrete,
                                .difficulties = {1, 4, 9},
                                .last_steps = {5, 10}};
  EXPECT_EQ(difficulties(listed, {1, 5, 6, 10, 11, 1000}), (Numbers{1, 1, 4, 4, 9, 9}));
  EXPECT_EQ(steps_of_new_difficulty(listed), (Numbers{1, 6, 11}));
}

TEST(Curriculum, CutsTheSamplesOfAStepAndOnlyThose) {
  CurriculumConfig curriculum{.min_difficulty = 8, .max_difficulty = 24, .total_steps = 10, .difficulty_step = 8};
  const SampleSpec sample{.input = {32}, .targets = {32}, .input_values = 5, .classes = 5};
  EXPECT_EQ(sample_of_step(curriculum, sample, 0).input, Shape{32}) << "not enabled";
  curriculum.enabled = true;
  EXPECT_EQ(sample_of_step(curriculum, sample, 0).input, Shape{8});
  EXPECT_EQ(sample_of_step(curriculum, sample, 8).targets, Shape{16});
  EXPECT_EQ(sample_of_step(curriculum, sample, 9).targets, Shape{24}) << "steps are counted from 0";
  EXPECT_EQ(longest_sample(curriculum, sample).input, Shape{24});
  use_longest_samples(curriculum);
  EXPECT_EQ(sample_of_step(curriculum, sample, 0).input, Shape{24});
}

const std::string kSchedule = R"("min_difficulty": 8, "max_difficulty": 64, "schedule_type": "fixed_root",
    "schedule_config": {"total_curriculum_step": 10, "difficulty_step": 8, "root_degree": 2})";

std::string as_sampling(const std::string& metric) {
  return R"({"data_efficiency": {"enabled": true, "seed": 1234, "data_routing": {"enabled": false},
      "data_sampling": {"enabled": true, "num_epochs": 1, "num_workers": 0, "dynamic_batching": {"enabled": false},
        "curriculum_learning": {"enabled": true, "data_cluster_path": "clusters", "curriculum_metrics": {)" +
         metric + "}}}}}";
}

TEST(Curriculum, BothSectionsOfDeepSpeedGiveTheSame) {
  const Config legacy =
      parse_config(R"({"curriculum_learning": {"enabled": true, "curriculum_type": "seqlen", )" + kSchedule + "}}", "a.json");
  EXPECT_EQ(difficulties(legacy.curriculum, {1, 2, 10}), (Numbers{24, 32, 64}));
  for (const char* name : {"seqlen", "seqlen_truncate"}) {
    const Config sampled =
        parse_config(as_sampling(std::string("\"") + name + R"(": {"index_to_sample_path": "a", "index_to_metric_path": "b",
            "difficulty_type": "value", "clustering_type": "single_cluster", )" +
                                 kSchedule + "}"),
                     "a.json");
    ASSERT_TRUE(sampled.curriculum.enabled);
    EXPECT_EQ(difficulties(sampled.curriculum, {1, 2, 10}), (Numbers{24, 32, 64}));
  }
}

TEST(Curriculum, OfASectionThatIsSwitchedOffIsNotRead) {
  EXPECT_FALSE(
      parse_config(R"({"curriculum_learning": {"enabled": false, "min_difficulty": 100000}})", "a").curriculum.enabled);
  std::string text = as_sampling(R"("vocabularyrarity": {"min_difficulty": 1})");
  EXPECT_NE(refusal(text), "accepted");
  for (const char* level : {"{\"data_efficiency\": {\"enabled\": ", "\"data_sampling\": {\"enabled\": ",
                            "\"curriculum_learning\": {\"enabled\": "}) {
    std::string off = text;
    const size_t at = off.find(level) + std::string(level).size();
    off.replace(at, 4, "false");
    EXPECT_EQ(refusal(off), "accepted") << off;
  }
}

}  // namespace
}  // namespace trivet
