// What the golden schedules do not show (ScheduleReference in training_reference_test.cpp, which covers every type).
#include "engine/optimizer/lr_schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "engine/config/config.h"
#include "engine/config/load.h"

namespace trivet {
namespace {

constexpr double kTiny = 1e-15;

SchedulerConfig scheduler(SchedulerType type) {
  SchedulerConfig config;
  config.type = type;
  return config;
}

void expect_rates(const SchedulerConfig& config, double base_lr, const std::vector<double>& expected) {
  for (size_t step = 0; step < expected.size(); ++step)
    EXPECT_NEAR(lr_at(config, base_lr, static_cast<int64_t>(step)), expected[step], kTiny) << "step " << step;
}

TEST(LrSchedule, WithoutASchedulerTheRateIsTheOptimizers) { expect_rates(SchedulerConfig{}, 0.25, {0.25, 0.25, 0.25}); }

TEST(LrSchedule, AWarmupOfOneStepCountsAsTwo) {
  SchedulerConfig s = scheduler(SchedulerType::WarmupLR);
  s.warmup_num_steps = 1;
  expect_rates(s, 1, {0, 0, 1, 1});
}

SchedulerConfig one_cycle() {
  SchedulerConfig s = scheduler(SchedulerType::OneCycle);
  s.cycle_min_lr = 1;
  s.cycle_max_lr = 3;
  s.cycle_first_step_size = 2;
  s.cycle_second_step_size = 4;
  s.decay_step_size = 2;
  s.decay_lr_rate = 1;
  s.cycle_min_mom = 0.5;
  s.cycle_max_mom = 0.9;
  s.decay_mom_rate = 0.1;
  return s;
}

TEST(LrSchedule, OneCycleWithoutSecondSizeIsSymmetric) {
  SchedulerConfig s = one_cycle();
  s.cycle_second_step_size = 0;
  s.decay_step_size = 0;
  expect_rates(s, 9, {1, 2, 3, 2, 1, 1});
}

TEST(LrSchedule, OneCycleInStairsHoldsTheRateBetweenThem) {
  SchedulerConfig s = one_cycle();
  s.cycle_first_step_size = 4;
  s.cycle_first_stair_count = 2;  // the way down has as many
  s.decay_step_size = 0;
  expect_rates(s, 9, {1, 1, 2, 2, 3, 2, 2, 1, 1});
}

TEST(LrSchedule, OneCycleMovesBeta1AgainstTheRate) {
  OptimizerConfig optimizer;
  const double expected[] = {0.5, 0.7, 0.5, 0.6, 0.7, 0.8, 0.9, 0.9 * 1.05, 0.9 * 1.1};
  for (const OptimizerType type : {OptimizerType::Adam, OptimizerType::AdamW, OptimizerType::Lamb, OptimizerType::Lion}) {
    optimizer.type = type;
    for (int64_t step = 0; step < 9; ++step) {
      const Betas betas = betas_at(one_cycle(), optimizer, step);
      EXPECT_NEAR(betas.beta1, expected[step], kTiny) << "step " << step;
      EXPECT_EQ(betas.beta2, 0.99);
    }
  }
}

TEST(LrSchedule, BetasStayTheOptimizersWithoutACycle) {
  OptimizerConfig optimizer;
  SchedulerConfig still = one_cycle();
  still.cycle_momentum = false;
  EXPECT_EQ(betas_at(still, optimizer, 3).beta1, 0.9);
  EXPECT_EQ(betas_at(SchedulerConfig{}, optimizer, 3).beta2, 0.999);
  for (const OptimizerType type : {OptimizerType::Sgd, OptimizerType::Adagrad}) {
    optimizer.type = type;
    EXPECT_EQ(betas_at(one_cycle(), optimizer, 3).beta1, 0.9);
  }
}

TEST(LrSchedule, TheRateScalesWithTheBatch) {
  EXPECT_EQ(lr_factor(LrScaling::None, 0, 64), 1);
  EXPECT_EQ(lr_factor(LrScaling::Linear, 16, 64), 4);
  EXPECT_EQ(lr_factor(LrScaling::SquareRoot, 16, 64), 2);
  Config config;
  config.optimizer.lr = 0.1;
  config.lr_scaling = LrScaling::Linear;
  config.lr_scaling_base_batch = 16;
  config.scheduler.warmup_num_steps = 2;
  EXPECT_DOUBLE_EQ(lr_at(config, 64, 0), 0.2);
  EXPECT_DOUBLE_EQ(lr_at(config, 64, 5), 0.4);
}

// Goyal et al. 2017: from the rate of the small batch in even steps to that of the large one.
TEST(LrSchedule, TheScaledRateIsReachedAfterAWarmUp) {
  Config config;
  config.optimizer.lr = 0.1;
  config.lr_scaling = LrScaling::Linear;
  config.lr_scaling_base_batch = 32;
  config.lr_scaling_warmup_steps = 4;
  const double expected[] = {0.1, 0.275, 0.45, 0.625, 0.8, 0.8};
  for (int64_t step = 0; step < 6; ++step) EXPECT_DOUBLE_EQ(lr_at(config, 256, step), expected[step]) << step;
  config.lr_scaling_warmup_steps = 0;
  EXPECT_EQ(lr_at(config, 256, 0), 8 * 0.1);
}

std::string refusal_of(const Config& config) {
  try {
    check_steps_are_known(config);
    return "accepted";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

// An engine that is embedded does not know the data.
TEST(LrSchedule, EpochsMustHaveBeenCounted) {
  Config config;
  config.source = "a.json";
  config.training.epochs = 3;
  EXPECT_EQ(refusal_of(config), "accepted");
  config.scheduler.type = SchedulerType::Cosine;
  EXPECT_EQ(refusal_of(config),
            "a.json: scheduler.type: its epochs can only be counted by a trainer that knows the data; give "
            "scheduler.params.total_num_steps or training.steps");
  config.scheduler.total_num_steps = 10;
  EXPECT_EQ(refusal_of(config), "accepted");
  config.lr_scaling_warmup_epochs = 5;
  EXPECT_EQ(refusal_of(config), "accepted");
  config.lr_scaling = LrScaling::Linear;
  EXPECT_EQ(refusal_of(config),
            "a.json: optimizer.lr_scaling.warmup_epochs: its epochs can only be counted by a trainer that knows the data; set "
            "Config::lr_scaling_warmup_steps, or leave warmup_epochs out");
  config.lr_scaling_warmup_steps = 1;
  EXPECT_EQ(refusal_of(config), "accepted");
  config.lr_scaling_warmup_steps = config.scheduler.total_num_steps = 0;
  use_constant_rate(config);
  EXPECT_EQ(refusal_of(config), "accepted");
}

TEST(RateWarnings, SayWhichStepsLearnNothing) {
  const std::string all = "so nothing is learned", rest = "so nothing more is learned";
  for (const auto& [scheduler, lr, steps, expected] : std::vector<std::tuple<std::string, double, int, std::string>>{
           {"", 0, 5, "optimizer.params.lr: the learning rate is 0 in all 5 steps, so nothing is learned"},
           {"", 0, 1, "the learning rate is 0 in the only step"},
           {"", 0.1, 1, ""},
           {R"("type": "WarmupLR", "params": {"warmup_num_steps": 10})", 0.1, 2, all},  // the logarithm of 1 is 0
           {R"("type": "WarmupLR", "params": {"warmup_num_steps": 10})", 0.1, 3, ""},
           {R"("type": "WarmupDecayLR", "params": {"total_num_steps": 5, "warmup_num_steps": 2})", 0.1, 5, ""},
           {R"("type": "WarmupDecayLR", "params": {"total_num_steps": 3, "warmup_num_steps": 2})", 0.1, 9,
            "scheduler.params.total_num_steps: the schedule of 3 steps ends before the run of 9 steps; from "
            "step 5 on the learning rate is 0"},
           {R"("type": "Cosine", "params": {"total_num_steps": 3, "end_ratio": 0.5})", 0.1, 9, "on the learning rate is 0.05"},
           {R"("type": "WarmupDecayLR", "params": {"total_num_steps": 1, "warmup_num_steps": 2})", 0.1, 9, rest},
           {R"("type": "OneCycle", "params": {"cycle_min_lr": 0, "cycle_max_lr": 1, "cycle_first_step_size": 2})", 0.1, 9,
            "scheduler.params: from step 5 of 9 on the learning rate is 0"},
           {R"("type": "OneCycle", "params": {"cycle_min_lr": 0, "cycle_max_lr": 0})", 0.1, 9, all}}) {
    const std::string text = fmt::format(R"({{"training": {{"steps": {}}}, "optimizer": {{"params": {{"lr": {}}}}}{}}})", steps,
                                         lr, scheduler.empty() ? "" : ", \"scheduler\": {" + scheduler + "}");
    const std::vector<std::string> lines = warnings_of_rates(parse_config(text, "a"));
    ASSERT_EQ(lines.size(), expected.empty() ? 0u : 1u) << text << ": " << testing::PrintToString(lines);
    if (!lines.empty()) {
      EXPECT_NE(lines[0].find(expected), std::string::npos) << text << ": " << lines[0];
    }
  }
}

}  // namespace
}  // namespace trivet
