#include "autotune/layout.h"

#include <gtest/gtest.h>

#include "autotune/step_model.h"
#include "engine/config/load.h"
#include "engine/make_plan.h"

namespace trivet::autotune {
namespace {

constexpr const char* kConfig = R"({
  "model": {"type": "gpt", "layers": 6, "hidden_size": 512, "heads": 8, "sequence_length": 64, "vocabulary": "bytes"},
  "data": {"train": "a.txt"}, "training": {"steps": 1}, "train_batch_size": 48, "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW"}, "gradient_accumulation_steps": 1, "activation_checkpointing": {"mode": "full", "every": 2},
  "zero_optimization": {"stage": 2, "reduce_bucket_size": 1000, "allgather_bucket_size": 1000}
})";

Layout planned(const Config& config, int64_t devices) {
  const model::Model model = model::build(model::with_vocabulary(config.model, 256));
  return layout_of(make_plan(config, model, static_cast<int>(devices)));
}

Layout planned(const Layout& layout) {
  const model::Model model = model::build(model::with_vocabulary(parse_config(kConfig, "c.json").model, 256));
  const Cluster cluster = cluster_named("h100");
  std::vector<std::string> overrides;
  for (const auto& [key, value] : config_keys(layout, {.largest_block = StepModel(model, cluster).largest_block(layout)}))
    overrides.push_back(key + "=" + value);
  return planned(parse_config(kConfig, "c.json", overrides), layout.devices());
}

// Whatever the config said before: with the keys of a layout, its plan is that layout.
TEST(Layout, IsThatOfAConfigWithItsKeys) {
  for (const Layout& layout :
       {Layout{.microbatches = 48}, Layout{.data = 4, .zero_stage = 1, .microbatch = 3, .microbatches = 4},
        Layout{.data = 4, .zero_stage = 0, .microbatch = 12, .overlap = false},
        Layout{.data = 2, .tensor = 4, .zero_stage = 2, .microbatch = 24, .recompute = Recompute::Full},
        Layout{.data = 2, .context = 4, .tensor = 2, .zero_stage = 2, .microbatch = 24},
        Layout{.context = 2, .zero_stage = 3, .microbatch = 48},
        Layout{
            .context = 4, .zero_stage = 3, .microbatch = 48, .context_kind = ContextKind::UlyssesRing, .context_neighbours = 2},
        Layout{.tensor = 2, .microbatch = 48, .recompute = Recompute::Selective, .sequence_parallel = true},
        Layout{.data = 2, .zero_stage = 3, .microbatch = 24},
        Layout{.data = 2, .zero_stage = 3, .microbatch = 24, .prefetch = false},
        Layout{.data = 2, .zero_stage = 3, .microbatch = 24, .offload_optimizer = true},
        Layout{.zero_stage = 1, .microbatch = 1, .microbatches = 48, .offload_optimizer = true},
        Layout{.data = 2, .zero_stage = 1, .microbatch = 24, .reduce_bucket = 4096, .gather_bucket = 8192},
        Layout{.pipeline = 2, .chunks = 4, .schedule = ScheduleKind::Interleaved, .microbatches = 48},
        Layout{.pipeline = 4, .schedule = ScheduleKind::ZeroBubbleH1, .microbatches = 48},
        Layout{.pipeline = 4, .chunks = 2, .schedule = ScheduleKind::ZeroBubbleV, .microbatches = 48}})
    EXPECT_EQ(planned(layout), layout) << to_string(planned(layout)) << "\n" << to_string(layout);
}

// On one rank a shard is the whole tensor, and on a CPU host memory is the device's memory.
TEST(Layout, SaysWhatTheEngineDoesNotWhatTheConfigSays) {
  Config config =
      parse_config(kConfig, "c.json",
                   {"zero_optimization.stage=3", "activation_checkpointing.every=1", "gradient_accumulation_steps=48",
                    "pipeline.schedule=zb-h1", "zero_optimization.offload_optimizer.device=cpu"});
  const Layout cpu = planned(config, 1);
  EXPECT_EQ(cpu.zero_stage, 0);
  EXPECT_FALSE(cpu.offload_optimizer);
  EXPECT_EQ(cpu.schedule, ScheduleKind::OneForwardOneBackward);
  config.device = DeviceChoice::Cuda;
  EXPECT_EQ(planned(config, 1).zero_stage, 1);
  EXPECT_TRUE(planned(config, 1).offload_optimizer);
}

// Blocks have 3.2 M elements: a smaller bucket cuts them, a larger one does not.
TEST(Layout, HasTheBucketsThatCutABlock) {
  const auto of = [](const std::string& key, int64_t value) {
    return planned(parse_config(kConfig, "c.json",
                                {"zero_optimization.stage=3", "activation_checkpointing.every=1",
                                 "gradient_accumulation_steps=24", "zero_optimization.reduce_bucket_size=4000000",
                                 "zero_optimization." + key + "=" + std::to_string(value)}),
                   2);
  };
  EXPECT_EQ(of("reduce_bucket_size", 2'000'000).reduce_bucket, 2'000'000);
  EXPECT_EQ(of("reduce_bucket_size", 4'000'000).reduce_bucket, 0);
  EXPECT_EQ(of("allgather_bucket_size", 2'000'000).gather_bucket, 2'000'000);
  EXPECT_EQ(of("allgather_bucket_size", 4'000'000).gather_bucket, 0);
  EXPECT_FALSE(of("stage3_prefetch_bucket_size", 2'000'000).prefetch);
  EXPECT_TRUE(of("stage3_prefetch_bucket_size", 4'000'000).prefetch);
  EXPECT_FALSE(of("stage3_max_live_parameters", 4'000'000).prefetch);
}

}  // namespace
}  // namespace trivet::autotune
