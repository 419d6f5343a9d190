// What `trivet plan --profile` prints, for a profile that is simple enough to check by hand.
#include "autotune/measured_prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "autotune/tune/measured_predictor.h"
#include "core/error.h"
#include "kernels/kernels.h"
#include "tests/engine/small_plan.h"

namespace trivet::autotune {
namespace {

using testing::HasSubstr;

// Matrix products run at 2 GFLOP/s and everything else at 10 GB/s, also between ranks.
HardwareProfile even_profile(int ranks = 1) {
  HardwareProfile profile{.version = "1", .date = "2026-01-02", .setups = {}};
  MeasuredSetup setup{.machine = "a machine", .ranks = ranks, .threads = 1, .kernels = {}, .operations = {}};
  for (const char* variant : {"nt", "nn", "tn", "tn+"})
    setup.kernels.push_back(
        {"matmul", variant, DType::Float32, kernels::Bound::Products, {64, 64, 64}, 524288, 49152, 524288 / 2e9});
  setup.kernels.push_back({"copy", "", DType::Float32, kernels::Bound::Memory, {1 << 20}, 0, 8e6, 8e6 / 1e10});
  setup.kernels.push_back({"copy", "", DType::Float32, kernels::Bound::Memory, {1}, 0, 8, 1e-7});
  for (const comm::Operation operation :
       {comm::Operation::AllReduce, comm::Operation::AllGather, comm::Operation::ReduceScatter})
    if (ranks > 1) setup.operations.push_back({operation, comm::ReduceOp::Sum, DType::Float32, 1 << 20, ranks, 1e-4});
  profile.merge(setup);
  return profile;
}

TEST(MeasuredPrediction, SaysTokensAndUtilizationOfTheRehearsedStep) {
  const Config config = small_config();
  const Plan plan = plan_of(config, 1);
  const HardwareProfile profile = even_profile();
  const MeasuredPrediction prediction = predict_plan(plan, model_of(config), profile, "p.json");
  EXPECT_EQ(prediction.source, "a machine, measured with 1 rank on 2026-01-02 (p.json)");
  const double seconds = prediction.step.seconds;
  EXPECT_GT(seconds, 0.9 * plan.model_flops_per_step / 2e9);  // products take most of the step
  EXPECT_NEAR(prediction.targets_per_second, 12 * 32 / seconds, 1e-9 * prediction.targets_per_second);
  EXPECT_NEAR(prediction.product_flops, 2e9, 1);
  EXPECT_NEAR(prediction.model_flops_utilization, plan.model_flops_per_step / (seconds * 2e9), 1e-9);
  EXPECT_GT(prediction.unmeasured_share, 0);  // products of other variants, norms ...
  EXPECT_LT(prediction.unmeasured_share, 1);
}

TEST(MeasuredPrediction, UtilizationIsThatOfAllRanks) {
  const Config config = small_config();
  const Plan plan = plan_of(config, 2);
  const MeasuredPrediction prediction = predict_plan(plan, model_of(config), even_profile(2), "p.json");
  const double of_both = 2 * prediction.product_flops * prediction.step.seconds;
  EXPECT_NEAR(prediction.model_flops_utilization, plan.model_flops_per_step / of_both, 1e-9);
}

TEST(MeasuredPrediction, TextAndJsonSayTheSame) {
  const Config config = small_config();
  const Plan plan = plan_of(config, 1);
  const MeasuredPrediction prediction = predict_plan(plan, model_of(config), even_profile(), "p.json");
  const auto json = nlohmann::json::parse(to_json(plan, prediction));
  EXPECT_DOUBLE_EQ(json["step_seconds"].get<double>(), prediction.step.seconds);  // a sum of rounded parts
  EXPECT_EQ(json["tokens_per_second"].get<double>(), prediction.targets_per_second);
  EXPECT_EQ(json["seconds"]["compute"].get<double>(), prediction.step.parts.compute);
  double sum = 0;
  for (const auto& [name, value] : json["seconds"].items()) sum += value.get<double>();
  EXPECT_NEAR(sum, prediction.step.seconds, 1e-8);
  const std::string text = to_text(plan, prediction);
  EXPECT_THAT(text, HasSubstr("\non a machine, measured with 1 rank on 2026-01-02 (p.json); a prediction\n"));
  EXPECT_THAT(text, HasSubstr("step      "));
  EXPECT_THAT(text, HasSubstr(" % of the kernels' time is in kinds that were not measured: "));
  const PlanPage page = page_of(plan, prediction);
  ASSERT_TRUE(page.step.has_value());
  EXPECT_NEAR(page.step->seconds.total(), prediction.step.seconds, 1e-8);
  EXPECT_THAT(to_html(page), HasSubstr("a machine, measured with 1 rank"));
}

TEST(MeasuredPrediction, PricesTokens) {
  const Config config = small_config();
  const Plan plan = plan_of(config, 1);
  MeasuredPrediction prediction = predict_plan(plan, model_of(config), even_profile(), "p.json");
  EXPECT_FALSE(nlohmann::json::parse(to_json(plan, prediction)).contains("price"));
  prediction.price_per_device_hour = 36;
  const double token = 36 / 3600.0 / prediction.targets_per_second;
  EXPECT_NEAR(nlohmann::json::parse(to_json(plan, prediction))["price"]["per_token"].get<double>(), token, 1e-12 * token);
  EXPECT_THAT(to_text(plan, prediction), HasSubstr("\nprice     "));
  const std::string page = to_html(page_of(plan, prediction, 1e12));
  EXPECT_THAT(page, HasSubstr(" for 1 M tokens, "));
  EXPECT_THAT(page, HasSubstr("<p>1 T tokens: "));
}

TEST(MeasuredPrediction, RefusesAProfileThatDoesNotFit) {
  const Config config = small_config();
  HardwareProfile profile = even_profile();
  profile.setups.front().device = Device::Cuda;
  const auto refusal = [&](const HardwareProfile& with) -> std::string {
    try {
      predict_plan(plan_of(config, 1), model_of(config), with, "p.json");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal(profile),
            "p.json: was measured on a machine (\"cuda\"), but the plan is for device \"cpu\"; measure on that device");
  profile = even_profile();
  profile.setups.front().kernels.erase(profile.setups.front().kernels.begin() + 1, profile.setups.front().kernels.end());
  EXPECT_THAT(refusal(profile), HasSubstr("% of the kernels' time is in kinds that were not measured ("));
}

TEST(MeasuredPrediction, SaysWhatToMeasure) {
  const Config config = small_config();
  EXPECT_THAT(
      [&] { predict_plan(plan_of(config, 2), model_of(config), even_profile(), "a b.json"); },
      testing::ThrowsMessage<ConfigError>("a b.json: was measured with 1 ranks, but the plan has 2; run `trivet bench kernels "
                                          "--ranks 2 --profile 'a b.json'` and `trivet bench comm` with the same flags"));
  EXPECT_THAT([&] { make_measured_predictor(even_profile(), "it's.json", {}, Device::Cpu, 1, 2); },
              testing::ThrowsMessage<ConfigError>("it's.json: has no measurements with 2 ranks; run `trivet bench kernels "
                                                  "--ranks 2 --profile 'it'\\''s.json'`"));
}

}  // namespace
}  // namespace trivet::autotune
