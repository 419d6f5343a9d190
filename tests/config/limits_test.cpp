// Tests rules between keys, at the last value that is accepted and at the next one.
#include <gtest/gtest.h>

#include "core/error.h"
#include "engine/config/load.h"

namespace trivet {
namespace {

bool accepted(const Config& config) {
  try {
    check(config);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

TEST(Limits, ClippingIsNotNegative) {
  Config config;
  config.gradient_clipping = 0;
  EXPECT_TRUE(accepted(config));
  config.gradient_clipping = -1;
  EXPECT_FALSE(accepted(config));
}

TEST(Limits, ATimelineMayEndWithTheLastStep) {
  Config config;
  config.training.steps = 10;
  config.timeline.steps = 3;
  config.timeline.step = 8;
  EXPECT_TRUE(accepted(config));
  config.timeline.step = 9;
  EXPECT_FALSE(accepted(config));
}

TEST(Limits, NesterovHasMomentumAndNoDampening) {
  Config config;
  config.optimizer.type = OptimizerType::Sgd;
  config.optimizer.nesterov = true;
  config.optimizer.momentum = 0.9;
  config.optimizer.dampening = 0;
  EXPECT_TRUE(accepted(config));
  config.optimizer.dampening = 0.1;
  EXPECT_FALSE(accepted(config));
  config.optimizer.dampening = 0;
  config.optimizer.momentum = 0;
  EXPECT_FALSE(accepted(config));
}

TEST(Limits, TheSmallestLossScaleMayBeTheFirst) {
  Config config;
  config.fp16.enabled = true;
  config.fp16.initial_scale_power = 3;
  config.fp16.min_loss_scale = 8;
  EXPECT_TRUE(accepted(config));
  config.fp16.min_loss_scale = 9;
  EXPECT_FALSE(accepted(config));
}

TEST(Limits, APipelineHasAsManyRanksAsBlocksAtMost) {
  Config config;
  config.model.layers = 4;  // plus the embedding and the head
  config.parallel.pipeline = 6;
  EXPECT_TRUE(accepted(config));
  config.parallel.pipeline = 7;
  EXPECT_FALSE(accepted(config));
}

// AdamW has two moments in float32, and each sub-group in memory needs a buffer for each.
TEST(Limits, OffloadingNeedsABufferForEachTensorOfEachSubGroup) {
  Config config;
  config.zero.stage = 1;
  OffloadOptimizerConfig& offload = config.zero.offload_optimizer;
  offload.device = OffloadDevice::Nvme;
  offload.nvme_path = "/nvme";
  for (const auto& [read, write, sets] : {std::tuple{false, false, 1}, {true, false, 2}, {false, true, 2}, {true, true, 3}}) {
    offload.pipeline_read = read;
    offload.pipeline_write = write;
    offload.buffer_count = 2 * sets;
    EXPECT_TRUE(accepted(config)) << read << write;
    offload.buffer_count = 2 * sets - 1;
    EXPECT_FALSE(accepted(config)) << read << write;
  }
}

}  // namespace
}  // namespace trivet
