// Tests which metrics of data_efficiency choose samples, which cut them, and how that is said.
#include "engine/config/sample_curriculum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/config/curriculum.h"
#include "engine/config/deepspeed.h"
#include "engine/config/explain.h"
#include "engine/config/load.h"

namespace trivet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Config with_metrics(const std::string& metrics, const std::string& further = "") {
  return parse_config(R"({"data_efficiency": {"enabled": true, "seed": 1234, "data_sampling": {"enabled": true, "num_epochs": 1,
      "curriculum_learning": {"enabled": true, "data_cluster_path": "clusters", "curriculum_metrics": {)" +
                          metrics + "}}}}" + further + "}",
                      "metrics.json");
}

// As in DeepSpeed's documentation.
std::string metric(const std::string& name, const std::string& type = "percentile",
                   const std::string& clustering = "schedule_based") {
  return "\"" + name + R"(": {"index_to_sample_path": "a", "index_to_metric_path": "b", "difficulty_type": ")" + type +
         R"(", "clustering_type": ")" + clustering + R"(", "min_difficulty": 1, "max_difficulty": 100,
         "schedule_type": "fixed_root", "schedule_config": {"total_curriculum_step": 110000, "difficulty_step": 1,
         "root_degree": 2}})";
}

TEST(SampleCurriculum, ReadsTheConfigOfDeepSpeedsDocumentation) {
  for (const char* name : {"vocabularyrarity", "voc"}) {
    const Config config = with_metrics(metric(name));
    ASSERT_TRUE(config.sample_curriculum.enabled);
    EXPECT_FALSE(config.sample_curriculum.length.schedule.enabled);
    EXPECT_FALSE(config.curriculum.enabled) << "nothing is cut";
    const SampleMetric& rarity = config.sample_curriculum.rarity;
    EXPECT_TRUE(rarity.schedule.enabled);
    EXPECT_EQ(rarity.type, DifficultyType::Percentile);
    EXPECT_EQ(difficulty_at(rarity.schedule, 1), 1);
    EXPECT_EQ(difficulty_at(rarity.schedule, 27500), 50) << "1 + 99 sqrt(1 / 4)";
    EXPECT_EQ(difficulty_at(rarity.schedule, 110000), 100);
    EXPECT_EQ(config::describe_sample_curriculum(config),
              "vocabularyrarity percentile 1 of 100 in step 1, 100 from step 110000 on");
    const std::string section = config::section_of_metric("vocabularyrarity");
    EXPECT_THAT(
        accepted_without_effect(config),
        testing::IsSupersetOf(
            {section + ".index_to_sample_path: the metric is measured on the samples of this run, so that no files are needed",
             section +
                 ".index_to_metric_path: the metric is measured on the samples of this run, so that no files are needed"}));
    EXPECT_THAT(differences_from_deepspeed(config),
                testing::Contains(
                    HasSubstr("curriculum_learning: easy samples first, vocabularyrarity percentile 1 of 100 in step 1")));
    EXPECT_TRUE(diff(config, parse_config(explain_as_json(config), "again.json")).empty());
  }
}

TEST(SampleCurriculum, LengthsCutOrChoose) {
  const Config cuts = with_metrics(metric("seqlen", "value", "single_cluster"));
  EXPECT_TRUE(cuts.curriculum.enabled);
  EXPECT_EQ(difficulty_at(cuts.curriculum, 27500), 50);
  EXPECT_FALSE(cuts.sample_curriculum.enabled);
  EXPECT_EQ(config::describe_sample_curriculum(cuts), "");
  EXPECT_TRUE(diff(cuts, parse_config(explain_as_json(cuts), "again.json")).empty());

  const Config chooses = with_metrics(metric("seqlen", "value"), R"(, "data": {"packing": "single"})");
  EXPECT_FALSE(chooses.curriculum.enabled);
  EXPECT_TRUE(chooses.sample_curriculum.length.schedule.enabled);
  EXPECT_EQ(config::describe_sample_curriculum(chooses), "seqlen at most 1 in step 1, 100 from step 110000 on");
  EXPECT_TRUE(diff(chooses, parse_config(explain_as_json(chooses), "again.json")).empty());
}

// Rows of pairs end where their answers end.
TEST(SampleCurriculum, PairsHaveLengths) {
  EXPECT_TRUE(
      with_metrics(metric("seqlen"), R"(, "training": {"objective": "dpo"})").sample_curriculum.length.schedule.enabled);
}

TEST(SampleCurriculum, MetricsWorkTogether) {
  const std::string cuts = R"("seqlen_truncate": {"min_difficulty": 8, "max_difficulty": 64,
      "schedule_config": {"total_curriculum_step": 10, "difficulty_step": 8}}, )";
  const Config both = with_metrics(cuts + metric("vocabularyrarity"));
  EXPECT_TRUE(both.curriculum.enabled);
  EXPECT_EQ(difficulty_at(both.curriculum, 1), 8);
  EXPECT_TRUE(both.sample_curriculum.rarity.schedule.enabled);
  EXPECT_TRUE(diff(both, parse_config(explain_as_json(both), "again.json")).empty());

  const Config all =
      with_metrics(cuts + metric("vocabularyrarity") + ", " + metric("seqlen", "value"), R"(, "data": {"packing": "whole"})");
  EXPECT_TRUE(all.curriculum.enabled && all.sample_curriculum.rarity.schedule.enabled);
  EXPECT_EQ(config::describe_sample_curriculum(all),
            "seqlen at most 1 in step 1, 100 from step 110000 on and vocabularyrarity percentile 1 of 100 in step 1, 100 from "
            "step 110000 on");

  const Config with_first_form = with_metrics(
      metric("vocabularyrarity"), R"(, "curriculum_learning": {"enabled": true, "min_difficulty": 8, "max_difficulty": 64,
      "schedule_config": {"total_curriculum_step": 10, "difficulty_step": 8}})");
  EXPECT_TRUE(with_first_form.curriculum.enabled && with_first_form.sample_curriculum.enabled);
}

TEST(SampleCurriculum, OfAListHasOneDifficultyIfItNeedsNoMore) {
  const Config config =
      with_metrics(R"("vocabularyrarity": {"difficulty_type": "value", "min_difficulty": 7, "max_difficulty": 7,
      "schedule_type": "fixed_discrete", "schedule_config": {"difficulty": [7], "max_step": []}})");
  EXPECT_EQ(config::describe_sample_curriculum(config), "vocabularyrarity at most 7 in step 1");
}

}  // namespace
}  // namespace trivet
