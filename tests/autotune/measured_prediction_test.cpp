// What trivet plan --profile says, with a profile that a test can reckon with.
#include "autotune/measured_prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/engine/small_plan.h"

namespace trivet::autotune {
namespace {

using testing::HasSubstr;

// Products at 2 GFLOP/s, all else at 1 GB/s.
HardwareProfile even_profile() {
  HardwareProfile profile{.version = "1", .date = "2026-01-02", .setups = {}};
  profile.merge({.machine = "a machine",
                 .ranks = 1,
                 .threads = 1,
                 .kernels = {{"matmul", "nt", DType::Float32, {64, 64, 64}, 524288, 49152, 524288 / 2e9},
                             {"copy", "", DType::Float32, {1 << 20}, 0, 8e6, 8e6 / 1e9}},
                 .operations = {}});
  return profile;
}

TEST(MeasuredPrediction, SaysTokensAndUtilisationOfTheRehearsedStep) {
  const Config config = small_config();
  const Plan plan = plan_of(config, 1);
  const HardwareProfile profile = even_profile();
  const MeasuredPrediction prediction = predict_plan(plan, model_of(config), profile, "p.json");
  EXPECT_EQ(prediction.source, "a machine, measured with 1 rank on 2026-01-02 (p.json)");
  const double seconds = prediction.step.seconds;
  EXPECT_GT(seconds, plan.model_flops_per_step / 2e9);
  EXPECT_NEAR(prediction.tokens_per_second, 12 * 32 / seconds, 1e-9 * prediction.tokens_per_second);
  EXPECT_NEAR(prediction.product_flops, 2e9, 1);
  EXPECT_NEAR(prediction.model_flops_utilization, plan.model_flops_per_step / (seconds * 2e9), 1e-9);
  EXPECT_GT(prediction.unmeasured_share, 0);  // products of other variants, norms ...
  EXPECT_LT(prediction.unmeasured_share, 1);
}

TEST(MeasuredPrediction, TextAndJsonSayTheSame) {
  const Config config = small_config();
  const Plan plan = plan_of(config, 1);
  const MeasuredPrediction prediction = predict_plan(plan, model_of(config), even_profile(), "p.json");
  const auto json = nlohmann::json::parse(to_json(plan, prediction));
  EXPECT_EQ(json["step_seconds"].get<double>(), prediction.step.seconds);
  EXPECT_EQ(json["tokens_per_second"].get<double>(), prediction.tokens_per_second);
  EXPECT_EQ(json["seconds"]["compute"].get<double>(), prediction.step.parts.compute);
  double sum = 0;
  for (const auto& [name, value] : json["seconds"].items()) sum += value.get<double>();
  EXPECT_NEAR(sum, prediction.step.seconds, 1e-8);
  const std::string text = to_text(plan, prediction);
  EXPECT_THAT(text, HasSubstr("\non a machine, measured with 1 rank on 2026-01-02 (p.json); a prediction\n"));
  EXPECT_THAT(text, HasSubstr("step      "));
  EXPECT_THAT(text, HasSubstr(" % of the kernels' time is of kinds that were not measured"));
  const PlanPage page = page_of(plan, prediction);
  ASSERT_TRUE(page.step.has_value());
  EXPECT_NEAR(page.step->seconds.total(), prediction.step.seconds, 1e-8);
  EXPECT_THAT(to_html(page), HasSubstr("a machine, measured with 1 rank"));
}

TEST(MeasuredPrediction, SaysWhatToMeasure) {
  const Config config = small_config();
  try {
    predict_plan(plan_of(config, 2), model_of(config), even_profile(), "p.json");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "p.json: was measured with 1 ranks, the plan has 2; run `trivet bench kernels --ranks 2 --profile p.json` and "
                 "`trivet bench comm` likewise");
  }
}

}  // namespace
}  // namespace trivet::autotune
