// Compares steps in modelled time with closed formulas over the plan's own counts.
#include "autotune/rehearsed_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/engine/small_plan.h"

namespace trivet::autotune {
namespace {

// Kernels take time per FLOP and per byte moved, operations of more than one rank take a latency and time per byte.
class Costs final : public CostModel {
 public:
  double flop = 0, moved = 0, byte = 0, latency = 0;  // moved: for each byte of a kernel
  bool shares_cores = false;
  double kernel_seconds(const kernels::KernelCall& call) const override { return call.flops * flop + call.bytes * moved; }
  double operation_seconds(const OperationCall& call) const override {
    if (call.ranks == 1 || call.operation == comm::Operation::Receive) return 0;
    return latency + static_cast<double>(call.bytes) * byte;
  }
  bool streams_share_cores() const override { return shares_cores; }
};

constexpr int kSumsOfAll = 2;  // the loss and the norm
// Moments are integer nanoseconds.
constexpr double kTick = 1e-9;

RehearsedStep rehearse(const Config& config, int ranks, const Costs& costs) {
  return rehearse_step(plan_of(config, ranks), model_of(config), costs);
}

TEST(RehearsedStep, OneRankTakesWhatItsKernelsTake) {
  const Config config = small_config();
  Costs costs;
  costs.flop = 1e-9;
  const Plan plan = plan_of(config, 1);
  const RehearsedStep step = rehearse(config, 1, costs);
  const double expected = plan.ranks[0].step_counters.flops * 1e-9;
  EXPECT_NEAR(step.seconds / expected, 1, 1e-4);
  EXPECT_NEAR(step.parts.total(), step.seconds, 10 * kTick);
  EXPECT_GT(step.parts.compute, 0.9 * step.seconds);
  EXPECT_GT(step.parts.optimizer, 0);
}

TEST(RehearsedStep, RecomputedForwardsAreTheirOwnPart) {
  Config config = small_config();
  Costs costs;
  costs.flop = 1e-9;
  const RehearsedStep kept = rehearse(config, 1, costs);
  config.recompute = Recompute::Full;
  const RehearsedStep again = rehearse(config, 1, costs);
  EXPECT_EQ(kept.parts.recompute, 0);
  EXPECT_GT(again.parts.recompute, 0);
  EXPECT_NEAR(again.parts.compute, kept.parts.compute, 1e-4 * kept.parts.compute);
  EXPECT_NEAR(again.seconds - kept.seconds, again.parts.recompute, 1e-4 * kept.seconds);
}

// The ranks only communicate, one operation at a time, so a step takes one latency for each operation that the plan counts.
TEST(RehearsedStep, TheDataAxisTakesItsOperations) {
  for (const int stage : {0, 1, 2, 3}) {
    Config config = small_config();
    config.zero.stage = stage;
    config.zero.overlap_comm = false;
    Costs costs;
    costs.latency = 1e-3;
    const Plan plan = plan_of(config, 2);
    const RehearsedStep step = rehearse(config, 2, costs);
    const int64_t operations = plan.ranks[0].traffic_of("gather").operations + plan.ranks[0].traffic_of("reduce").operations;
    // The sums of the loss and the norm come on top.
    EXPECT_NEAR(step.parts.data, 1e-3 * static_cast<double>(operations + kSumsOfAll), 1e-6) << stage;
    EXPECT_NEAR(step.parts.total(), step.seconds, 10 * kTick) << stage;
    EXPECT_NEAR(step.seconds, step.parts.data, 1e-6) << stage;
  }
}

TEST(RehearsedStep, OverlapHidesGathersBehindKernels) {
  Config config = small_config();
  config.zero.stage = 3;
  Costs costs;
  costs.flop = 1e-9, costs.byte = 1e-10;
  config.zero.overlap_comm = false;
  const RehearsedStep serial = rehearse(config, 2, costs);
  config.zero.overlap_comm = true;
  const RehearsedStep beside = rehearse(config, 2, costs);
  costs.shares_cores = true;
  const RehearsedStep shared = rehearse(config, 2, costs);
  EXPECT_LT(beside.parts.data, 0.5 * serial.parts.data);
  EXPECT_NEAR(beside.parts.compute, serial.parts.compute, 1e-6);
  EXPECT_NEAR(serial.seconds - beside.seconds, serial.parts.data - beside.parts.data, 1e-2 * serial.parts.data);
  EXPECT_NEAR(shared.parts.data, serial.parts.data, 1e-6);
  EXPECT_NEAR(shared.seconds, serial.seconds, 1e-6);  // nothing is gained
}

// With overlap, the gathers of new weights run while the next step begins, and each step but the first waits for them. If
// nothing computes, the step waits for all of them, and none of the waiting counts as computing.
TEST(RehearsedStep, WaitsForTheGathersThatTheStepBeforeLeft) {
  Config config = small_config();
  config.zero.stage = 1;
  config.zero.overlap_comm = true;
  Costs costs;
  costs.latency = 1e-3;
  const RehearsedStep step = rehearse(config, 2, costs);
  const RankPlan rank = plan_of(config, 2).ranks[0];
  const auto operations = static_cast<double>(rank.traffic_of("gather").operations + rank.traffic_of("reduce").operations);
  EXPECT_GE(step.seconds, 1e-3 * operations);
  EXPECT_LE(step.seconds, 1e-3 * (operations + kSumsOfAll));
  EXPECT_NEAR(step.parts.compute, 0, kTick);
  config.zero.stage = 2;
  EXPECT_NEAR(rehearse(config, 2, costs).parts.compute, 0, kTick);
}

TEST(RehearsedStep, TheTensorAxisTakesItsOperations) {
  Config config = small_config();
  config.parallel.tensor = 2;
  Costs costs;
  costs.latency = 1e-3;
  const Plan plan = plan_of(config, 2);
  const RehearsedStep step = rehearse(config, 2, costs);
  EXPECT_NEAR(step.parts.tensor, 1e-3 * static_cast<double>(plan.ranks[0].traffic_of("tensor").operations), 1e-6);
  EXPECT_NEAR(step.parts.total(), step.seconds, 10 * kTick);
}

// Two ranks have half of the tokens each and, in attention, half of the heads over all tokens.
TEST(RehearsedStep, ContextRanksShareTheWorkAndTakeTheirExchanges) {
  Config config = small_config();
  config.batch = {.train_batch_size = 2, .micro_batch_size = 1};
  Costs costs;
  costs.flop = 1e-9;
  const RehearsedStep alone = rehearse(config, 1, costs);
  config.parallel.context = 2;
  EXPECT_NEAR(rehearse(config, 2, costs).parts.compute / alone.parts.compute, 0.5, 1e-3);
  costs.latency = 1e-3;
  const Plan plan = plan_of(config, 2);
  const RehearsedStep step = rehearse(config, 2, costs);
  EXPECT_EQ(plan.ranks[0].traffic_of("context").operations, 4 * config.model.layers * 2);
  EXPECT_NEAR(step.parts.context, 1e-3 * static_cast<double>(plan.ranks[0].traffic_of("context").operations), 1e-6);
  EXPECT_NEAR(step.parts.compute / alone.parts.compute, 0.5, 1e-3);
  EXPECT_NEAR(step.parts.total(), step.seconds, 10 * kTick);
}

// GPipe and 1F1B with p stages of equal length and m microbatches leave (p - 1)/(m + p - 1) of a rank's time idle (Huang et al.
// 2019, Narayanan et al. 2021). The stages of such a small model are not quite equal, and the last one has the loss.
TEST(RehearsedStep, PipelinesHaveTheBubbleOfTheirSchedule) {
  Config config = small_config();
  config.model.layers = 6;
  config.parallel.pipeline = 2;
  config.pipeline.partition = pipeline::PartitionMethod::Cost;
  Costs costs;
  costs.flop = 1e-9;
  for (const int microbatches : {2, 4, 12}) {
    config.batch.train_batch_size = microbatches;
    const RehearsedStep step = rehearse(config, 2, costs);
    EXPECT_NEAR(step.parts.total(), step.seconds, 10 * kTick);
    ASSERT_EQ(step.timelines.size(), 1);
    EXPECT_NEAR(step.timelines[0].bubble_fraction, 1.0 / (microbatches + 1), 0.06) << microbatches;
    EXPECT_NEAR(step.parts.bubble / step.seconds, 1.0 / (microbatches + 1), 0.06) << microbatches;
  }
}

TEST(RehearsedStep, MessagesBetweenStagesDelayTheStep) {
  Config config = small_config();
  config.parallel.pipeline = 2;
  config.batch.train_batch_size = 4;
  Costs costs;
  costs.flop = 1e-9;
  const double without = rehearse(config, 2, costs).seconds;
  costs.latency = 1e-4;
  const RehearsedStep step = rehearse(config, 2, costs);
  // Nothing overlaps the messages of the first activation and the last gradient. The two sums over all ranks come on top.
  EXPECT_GT(step.seconds - without, 2e-4);
  EXPECT_LT(step.seconds - without, 2e-4 + 8e-4);
}

TEST(RehearsedStep, AllAxesTogetherAddUp) {
  Config config = small_config();
  config.parallel.pipeline = 2, config.parallel.tensor = 2;
  config.zero.stage = 2;
  Costs costs;
  costs.flop = 1e-9, costs.byte = 1e-10, costs.latency = 1e-6;
  const RehearsedStep step = rehearse(config, 8, costs);
  EXPECT_EQ(step.timelines.size(), 2);
  EXPECT_NEAR(step.parts.total(), step.seconds, 10 * kTick);
  for (const double part : {step.parts.compute, step.parts.tensor, step.parts.bubble, step.parts.data, step.parts.optimizer})
    EXPECT_GT(part, 0);
}

// Even if gathers and reductions have kernels of their own: without a neighbour stage no rank waits for one.
TEST(RehearsedStep, WithoutAPipelineThereIsNoBubble) {
  for (const bool shares_cores : {false, true})
    for (const bool overlap : {false, true})
      for (const int stage : {0, 1, 2, 3}) {
        Config config = small_config();
        config.zero.stage = stage;
        config.zero.overlap_comm = overlap;
        Costs costs;
        costs.flop = 1e-9, costs.moved = 1e-9, costs.byte = 1e-10, costs.latency = 1e-6;
        costs.shares_cores = shares_cores;
        const RehearsedStep step = rehearse(config, 2, costs);
        EXPECT_NEAR(step.parts.bubble / step.seconds, 0, 0.005) << stage << overlap << shares_cores;
        EXPECT_NEAR(step.parts.total(), step.seconds, 10 * kTick);
      }
}

TEST(RehearsedStep, FilesHaveNoModelledTime) {
  Config config = small_config();
  config.zero.stage = 3;
  config.zero.offload_optimizer.device = OffloadDevice::Nvme;
  config.zero.offload_optimizer.nvme_path = "/tmp";
  EXPECT_THAT([&] { rehearse(config, 2, {}); },
              testing::ThrowsMessage<ConfigError>(
                  "small.json: zero_optimization.offload_optimizer.device: \"nvme\" cannot be predicted, because the time that "
                  "files take is not modelled; use \"none\" or measure it with trivet bench step"));
}

}  // namespace
}  // namespace trivet::autotune
