// Random layerwise token dropping as DeepSpeed's users write it.
#include <gtest/gtest.h>

#include "engine/config/load.h"

namespace trivet {
namespace {

// Switched by the three words "true".
const std::string kTokenDrop =
    R"({"model": {"type": "gpt", "layers": 24, "sequence_length": 2048}, "data_efficiency": {"enabled": true,
  "seed": 1234, "data_routing": {"enabled": true, "random_ltd": {"enabled": true, "total_layer_num": 24, "random_ltd_layer_num": 3,
    "random_ltd_layer_id": [1, 2, 22], "model_mask_name": "attention_mask", "model_type": "decoder",
    "hidden_state_order": "seq_batch_dim",
    "random_ltd_schedule": {"min_value": 128, "max_value": 2048, "schedule_type": "fixed_linear",
      "schedule_config": {"require_steps": 200000, "seq_per_step": 16}}}}}})";

TEST(TokenDropConfig, IsReadWithDeepSpeedsKeys) {
  const model::TokenDrop drop = parse_config(kTokenDrop, "a.json").model.token_drop;
  EXPECT_TRUE(drop.enabled);
  EXPECT_EQ(drop.blocks, (std::vector<int64_t>{1, 2, 22}));
  EXPECT_EQ(drop.min_tokens, 128);
  EXPECT_EQ(drop.max_tokens, 2048);
  EXPECT_EQ(drop.steps, 200'000);
  EXPECT_EQ(drop.multiple, 16);
}

TEST(TokenDropConfig, EachSwitchTurnsItOff) {
  for (size_t at = kTokenDrop.find("true"); at != std::string::npos; at = kTokenDrop.find("true", at + 1)) {
    std::string off = kTokenDrop;
    off.replace(at, 4, "false");
    EXPECT_FALSE(parse_config(off, "a.json").model.token_drop.enabled) << off;
  }
}

}  // namespace
}  // namespace trivet
