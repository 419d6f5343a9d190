#include "engine/config/token_drop.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/config/config.h"
#include "engine/config/curriculum.h"
#include "engine/config/refuse.h"
#include "model/family.h"

namespace trivet::config {
namespace {

using model::TokenDrop;

constexpr const char* kSection = "data_efficiency.data_routing.random_ltd.";

[[noreturn]] void refuse_key(const Config& config, const std::string& key, const std::string& text) {
  refuse(config, kSection + key, text);
}

void require(const Config& config, int64_t value, const std::string& key) {
  if (value < 1) refuse_key(config, key, "is not given; blocks that leave tokens out need it");
}

void check_other_features(const Config& config) {
  if (model::family_of(config.model.type).reads_images)
    refuse_key(config, "enabled", "true needs a model of transformer blocks; use false");
  if (config.model.attention_window > 0)
    refuse_key(config, "enabled",
               fmt::format("true is not accepted with model.attention_window {}, which counts tokens that a block would leave "
                           "out; use false, or a window of 0",
                           config.model.attention_window));
  if (config.parallel.tensor > 1 && config.parallel.sequence_parallel)
    refuse_key(
        config, "enabled",
        "true is not accepted with parallel.sequence_parallel true, with which no rank has all tokens to choose from; use "
        "false for one of them");
  if (config.model.isolated_documents)
    refuse_key(config, "enabled",
               "true is not accepted with data.packing \"isolated\", whose documents a block would no longer tell apart; use "
               "false, or another packing");
  if (config.model.objective == model::Objective::Dpo)
    refuse_key(config, "enabled",
               "true is not accepted with training.objective \"dpo\": answers are compared as a whole; use false");
}

void check_blocks(const Config& config) {
  const std::vector<int64_t>& blocks = config.model.token_drop.blocks;
  const DataEfficiencyConfig& given = config.data_efficiency;
  const int64_t layers = config.model.layers, count = static_cast<int64_t>(blocks.size());
  const std::string key = "random_ltd_layer_id";
  if (blocks.empty()) refuse_key(config, key, "is not given; list the blocks that leave tokens out, from 0");
  for (const int64_t block : blocks) {
    if (block >= layers)
      refuse_key(config, key,
                 fmt::format("{} is not a block of the model; it has {}, from 0 to {}", block, layers, layers - 1));
    if (std::ranges::count(blocks, block) > 1) refuse_key(config, key, fmt::format("names block {} twice", block));
  }
  if (given.dropping_layers > 0 && given.dropping_layers != count)
    refuse_key(config, "random_ltd_layer_num",
               fmt::format("{} is not the number of blocks in random_ltd_layer_id, {}", given.dropping_layers, count));
  if (given.total_layers > 0 && given.total_layers != layers)
    refuse_key(config, "total_layer_num", fmt::format("{} is not model.layers {}", given.total_layers, layers));
}

void check_schedule(const Config& config) {
  const TokenDrop& drop = config.model.token_drop;
  require(config, drop.min_tokens, "random_ltd_schedule.min_value");
  require(config, drop.max_tokens, "random_ltd_schedule.max_value");
  require(config, drop.steps, "random_ltd_schedule.schedule_config.require_steps");
  require(config, drop.multiple, "random_ltd_schedule.schedule_config.seq_per_step");
  if (drop.min_tokens > drop.max_tokens)
    refuse_key(config, "random_ltd_schedule.min_value",
               fmt::format("{} is more than max_value {}", drop.min_tokens, drop.max_tokens));
  if (drop.max_tokens > config.model.sequence_length)
    refuse_key(config, "random_ltd_schedule.max_value",
               fmt::format("{} is more than model.sequence_length {}; use at most that", drop.max_tokens,
                           config.model.sequence_length));
  if (drop.multiple > drop.min_tokens)
    refuse_key(
        config, "random_ltd_schedule.schedule_config.seq_per_step",
        fmt::format(
            "{} leaves no token in the first step, whose min_value {} is rounded down to a multiple of it; use at most {}",
            drop.multiple, drop.min_tokens, drop.min_tokens));
}

}  // namespace

void check_token_drop(const Config& config) {
  if (!config.model.token_drop.enabled) return;
  check_other_features(config);
  check_blocks(config);
  check_schedule(config);
}

}  // namespace trivet::config
