// Compares training runs with those of PyTorch in float64, so each number that an engine reports has an independent witness.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/config/load.h"
#include "engine/optimizer/lr_schedule.h"
#include "tests/engine/golden_training.h"

namespace trivet::test {
namespace {

// At stage 3 small parameters are whole on both ranks, and matrices are sharded. A microbatch that is the full batch is halved
// for two ranks.
std::vector<TrainingPlace> places_of(const GoldenRun& run) {
  const Config config = parse_config(run.config, run.name);
  std::vector<TrainingPlace> places{
      {"one rank", 1, {}},
      {"two ranks, stage 2", 2, {"zero_optimization.stage=2"}},
      {"two ranks, stage 3", 2, {"zero_optimization.stage=3", "zero_optimization.stage3_param_persistence_threshold=100"}},
      {"one rank, layout mode", 1, {"reproducible=layout"}}};
  const int64_t half = config.batch.train_batch_size / 2;
  for (TrainingPlace& place : places)
    if (place.ranks == 2 && config.batch.micro_batch_size > half)
      place.overrides.push_back(fmt::format("train_micro_batch_size_per_gpu={}", half));
  return places;
}

class TrainingReference : public testing::TestWithParam<GoldenRun> {};

// A correct run in float32 (or in 16 bits) may differ from float64 by as much as PyTorch's own run did, times `kSlack`: sums
// are taken in a different order, and roundings that happened to cancel there need not cancel here. The floors are for runs
// where they almost cancelled: a few units in the last place of a loss, a norm of sums over 7000 elements, a weight that moved
// by a hundredth of its size.
constexpr double kSlack = 8;
TraceDifference tolerance(const GoldenRun& golden) {
  const TraceDifference& r = golden.rounding;
  return {std::max(kSlack * r.loss, 1e-6), std::max(kSlack * r.grad_norm, 1e-5), std::max(kSlack * r.loss, 1e-6),
          std::max(kSlack * r.weights, 1e-4)};
}

TEST_P(TrainingReference, LossesNormsRatesAndWeightsAgree) {
  const GoldenRun& golden = GetParam();
  const TraceDifference allowed = tolerance(golden);
  TraceDifference most;
  for (const TrainingPlace& place : places_of(golden)) {
    SCOPED_TRACE(place.name);
    const TrainingTrace trace = train(golden, place);
    ASSERT_EQ(trace.skipped, golden.trace.skipped);
    EXPECT_EQ(trace.counted_targets, golden.trace.counted_targets);
    EXPECT_EQ(trace.evaluated_targets, golden.trace.evaluated_targets);
    for (size_t step = 0; step < trace.lr.size(); ++step)
      EXPECT_NEAR(trace.lr[step], golden.trace.lr[step], 1e-14) << "learning rate of step " << step;
    const TraceDifference found = difference(golden, trace);
    EXPECT_LE(found.loss, allowed.loss);
    EXPECT_LE(found.grad_norm, allowed.grad_norm);
    EXPECT_LE(found.evaluation, allowed.evaluation);
    EXPECT_LE(found.weights, allowed.weights);
    most = {std::max(most.loss, found.loss), std::max(most.grad_norm, found.grad_norm),
            std::max(most.evaluation, found.evaluation), std::max(most.weights, found.weights)};
  }
  // bench/training_reference makes its table from these properties.
  RecordProperty("loss", fmt::format("{:.1e}", most.loss));
  RecordProperty("grad_norm", fmt::format("{:.1e}", most.grad_norm));
  RecordProperty("evaluation", fmt::format("{:.1e}", most.evaluation));
  RecordProperty("weights", golden.trace.weights.empty() ? "" : fmt::format("{:.1e}", most.weights));
}

INSTANTIATE_TEST_SUITE_P(Runs, TrainingReference, testing::ValuesIn(golden_runs()),
                         [](const auto& which) { return which.param.name; });

TEST(TraceDifference, OfANumberThatIsNanIsNan) {
  const auto golden = std::ranges::find_if(golden_runs(), [](const GoldenRun& run) { return !run.trace.weights.empty(); });
  ASSERT_NE(golden, golden_runs().end());
  const double nan = std::nan("");
  const TraceDifference none = difference(*golden, golden->trace);
  EXPECT_EQ(std::max({none.loss, none.grad_norm, none.evaluation, none.weights}), 0);
  TrainingTrace trace = golden->trace;  // each is followed by numbers that agree
  trace.loss.front() = trace.grad_norm.front() = trace.evaluation = nan;
  trace.weights.begin()->second.front() = nan;
  const TraceDifference found = difference(*golden, trace);
  EXPECT_TRUE(std::isnan(found.loss));
  EXPECT_TRUE(std::isnan(found.grad_norm));
  EXPECT_TRUE(std::isnan(found.evaluation));
  EXPECT_TRUE(std::isnan(found.weights));
}

class ScheduleReference : public testing::TestWithParam<GoldenSchedule> {};

TEST_P(ScheduleReference, EveryRateAgrees) {
  const Config config = parse_config(GetParam().config, GetParam().name);
  for (size_t step = 0; step < GetParam().lr.size(); ++step)
    EXPECT_NEAR(lr_at(config, config.batch.train_batch_size, static_cast<int64_t>(step)), GetParam().lr[step], 1e-15)
        << "step " << step;
}

INSTANTIATE_TEST_SUITE_P(Types, ScheduleReference, testing::ValuesIn(golden_schedules()),
                         [](const auto& which) { return which.param.name; });

}  // namespace
}  // namespace trivet::test
