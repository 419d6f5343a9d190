// The memory of a run with low-rank adapters: only adapters have gradients and optimizer states.
#include <gtest/gtest.h>

#include "comm/world.h"
#include "engine/engine.h"
#include "tests/engine/small_plan.h"

namespace trivet {
namespace {

Config lora_config(int stage) {
  Config config = small_config();
  config.zero.stage = stage;
  config.zero.stage3_param_persistence_threshold = 0;
  config.model.lora = {.rank = 4, .alpha = 8, .targets = {"c_attn"}};
  return config;
}

// A is 4 x 64 and B 192 x 4 in each of 3 blocks. Padding (to the ranks, and to the blocks in which sums are taken) adds
// nothing.
constexpr int64_t kAdapterElements = 3 * (4 * 64 + 192 * 4);

TEST(LoraPlan, HasGradientsAndStatesOfAdaptersAlone) {
  Config without = small_config();
  const int64_t base = plan_of(without, 1).ranks[0].memory[MemoryCategory::Parameters];
  const auto memory = plan_of(lora_config(0), 1).ranks[0].memory;
  EXPECT_EQ(memory[MemoryCategory::Parameters], base + 4 * kAdapterElements);
  EXPECT_EQ(memory[MemoryCategory::Gradients], 4 * kAdapterElements);
  EXPECT_EQ(memory[MemoryCategory::Optimizer], 2 * 4 * kAdapterElements);
  const auto shared = plan_of(lora_config(2), 4).ranks[0].memory;
  without.zero.stage = 2;  // with the padding of 4 ranks
  EXPECT_EQ(shared[MemoryCategory::Parameters],
            plan_of(without, 4).ranks[0].memory[MemoryCategory::Parameters] + 4 * kAdapterElements);
  EXPECT_EQ(shared[MemoryCategory::Gradients], kAdapterElements);
  EXPECT_EQ(shared[MemoryCategory::Optimizer], 2 * kAdapterElements);
}

// Frozen weights are sharded as others are.
TEST(LoraPlan, ShardsFrozenWeightsAtStage3) {
  const auto one = plan_of(lora_config(0), 1).ranks[0].memory;
  const auto four = plan_of(lora_config(3), 4).ranks[0].memory;
  const int64_t whole = one[MemoryCategory::Parameters], shard = four[MemoryCategory::Parameters];
  EXPECT_GE(4 * shard, whole);
  EXPECT_LT(4 * shard, whole * 11 / 10);  // each group is padded
}

TEST(LoraPlan, IsWhatTheEngineUses) {
  for (const int stage : {0, 2, 3}) {
    Config config = lora_config(stage);
    config.bf16.enabled = stage == 3;
    comm::run_threads(2, [&](comm::World& world) {
      Engine engine(plan_of(config, 2), model_of(config), world);
      const int64_t tokens = config.model.sequence_length;
      const std::vector<int32_t> ids(static_cast<size_t>(tokens), 5);
      const ConstTensorView view{ids.data(), DType::Int32, {1, tokens}};
      const std::vector<Microbatch> batch(static_cast<size_t>(engine.plan().batch.gradient_accumulation_steps),
                                          {view, view, 0});
      engine.train_batch(batch);
      engine.train_batch(batch);
      const MemoryBytes measured = engine.measured_memory(), planned = engine.plan().ranks[0].memory;
      for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
        EXPECT_EQ(measured[category], planned[category]) << name << ", stage " << stage;
    });
  }
}

}  // namespace
}  // namespace trivet
