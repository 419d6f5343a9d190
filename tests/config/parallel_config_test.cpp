// Accepted values of parallel.*, pipeline.* and activation_checkpointing.*. Refused ones are in bad_configs.txt.
#include <algorithm>

#include "engine/config/explain.h"
#include "model/model.h"
#include "tests/config/support.h"

namespace trivet {
namespace {

using pipeline::PartitionMethod;

std::string parts_without_effect(const std::string& text) {
  std::string lines;
  for (const std::string& line : accepted_without_effect(parse_config(text, "a"))) lines += (lines.empty() ? "" : "\n") + line;
  return lines;
}

TEST(ParallelConfig, EveryKeyIsRead) {
  const Config config = parse_config(R"({
    "model": {"layers": 22, "heads": 12, "sequence_length": 64},
    "parallel": {"tensor": 4, "pipeline": 4, "sequence_parallel": true, "rank_order": ["data", "pipeline", "tensor"]},
    "pipeline": {"schedule": "interleaved", "chunks": 3, "partition": "type:transformer|Embedding"},
    "activation_checkpointing": {"mode": "full", "every": 2, "partition_activations": true}, "train_batch_size": 8})",
                                     "a");
  EXPECT_EQ(config.parallel.tensor, 4);
  EXPECT_TRUE(config.parallel.sequence_parallel);
  EXPECT_EQ(config.parallel.rank_order, (std::vector<Axis>{Axis::Data, Axis::Pipeline, Axis::Tensor}));
  EXPECT_EQ(config.pipeline.schedule, ScheduleKind::Interleaved);
  EXPECT_EQ(chunks_of(config.pipeline), 3);
  EXPECT_EQ(config.pipeline.partition, PartitionMethod::Type);
  EXPECT_EQ(config.pipeline.partition_regex, "transformer|Embedding");
  EXPECT_EQ(config.recompute, Recompute::Full);
  EXPECT_EQ(config.recompute_every, 2);
  EXPECT_TRUE(config.partition_activations);
  EXPECT_EQ(accepted_without_effect(config),
            std::vector<std::string>{
                "activation_checkpointing.partition_activations: takes effect only when activation_checkpointing.mode is "
                "\"full\", parallel.tensor is more than 1 and parallel.sequence_parallel is false"});
  EXPECT_TRUE(diff(config, parse_config(explain_as_json(config), "b")).empty());
}

TEST(ParallelConfig, AScheduleMayBeAFile) {
  const Config config = parse_config(R"({"pipeline": {"schedule": "file:schedules/mine.txt"}})", "a");
  EXPECT_EQ(config.pipeline.schedule_file, "schedules/mine.txt");
  EXPECT_EQ(chunks_of(config.pipeline), 0);
  EXPECT_TRUE(diff(config, parse_config(explain_as_json(config), "b")).empty());
  EXPECT_EQ(parse_config(R"({"pipeline": {"schedule": "file:a"}})", "a", {"pipeline.schedule=gpipe"}).pipeline.schedule_file,
            "");
}

TEST(ParallelConfig, EverySchedule) {
  for (const auto& [name, kind] : EnumNames<ScheduleKind>::table) {
    const Config config = parse_config("{}", "a", {"parallel.pipeline=4", "pipeline.schedule=" + std::string(name)});
    EXPECT_EQ(config.pipeline.schedule, kind);
    EXPECT_EQ(chunks_of(config.pipeline), kind == ScheduleKind::Interleaved || kind == ScheduleKind::ZeroBubbleV ? 2 : 1)
        << name;
  }
}

TEST(ParallelConfig, EveryWayToDealBlocks) {
  const auto method = [](const std::string& name) {
    return parse_config("{}", "a", {"pipeline.partition=" + name}).pipeline.partition;
  };
  EXPECT_EQ(parse_config("{}", "a").pipeline.partition, PartitionMethod::Cost);
  EXPECT_EQ(method("best"), PartitionMethod::Cost);
  EXPECT_EQ(method("cost"), PartitionMethod::Cost);
  EXPECT_EQ(method("uniform"), PartitionMethod::Uniform);
  EXPECT_EQ(method("parameters"), PartitionMethod::Parameters);
  EXPECT_EQ(method("type:block"), PartitionMethod::Type);
  EXPECT_EQ(method("cost:costs.json"), PartitionMethod::Cost);
}

TEST(ParallelConfig, LayoutsThatJustFit) {
  for (const char* text :
       {R"({"model": {"layers": 2}, "parallel": {"pipeline": 4}})",
        R"({"model": {"layers": 4}, "parallel": {"pipeline": 3}, "pipeline": {"schedule": "zb-v", "chunks": 2}})",
        R"({"model": {"heads": 12, "key_value_heads": 2}, "parallel": {"tensor": 12}})",  // keys are shared by 6 ranks
        R"({"model": {"heads": 12, "vocabulary": 50257}, "parallel": {"tensor": 12}})",   // a vocabulary need not divide
        R"({"model": {"heads": 16, "key_value_heads": 8, "hidden_size": 64}, "parallel": {"tensor": 8}, "train_batch_size": 8,
               "train_micro_batch_size_per_gpu": 1, "reproducible": "layout"})",
        R"({"parallel": {"rank_order": ["data"]}})", R"({"pipeline": {"schedule": "zb-h1", "chunks": 1}})"})
    EXPECT_EQ(refusal(text), "accepted") << text;
}

TEST(ParallelConfig, WhatHasNoEffectIsListed) {
  EXPECT_EQ(parts_without_effect(R"({"parallel": {"sequence_parallel": true}})"),
            "parallel.sequence_parallel: takes effect only when parallel.tensor is more than 1");
  EXPECT_EQ(parts_without_effect(R"({"activation_checkpointing": {"mode": "selective", "partition_activations": true}})"),
            "activation_checkpointing.partition_activations: takes effect only when activation_checkpointing.mode is \"full\", "
            "parallel.tensor is more than 1 and parallel.sequence_parallel is false");
  EXPECT_EQ(parts_without_effect(R"({"activation_checkpointing": {"mode": "full", "partition_activations": true}})"),
            "activation_checkpointing.partition_activations: takes effect only when activation_checkpointing.mode is \"full\", "
            "parallel.tensor is more than 1 and parallel.sequence_parallel is false");
  EXPECT_EQ(parts_without_effect(R"({"model": {"heads": 4}, "parallel": {"tensor": 2},
                               "activation_checkpointing": {"mode": "full", "partition_activations": true}})"),
            "");
  EXPECT_EQ(parts_without_effect(R"({"activation_checkpointing": {"every": 2}})"),
            "activation_checkpointing.every: takes effect only when activation_checkpointing.mode is not \"none\"");
  EXPECT_EQ(parts_without_effect(R"({"parallel": {"pipeline": 2}, "pipeline": {"schedule": "file:a.txt", "chunks": 2}})"),
            "pipeline.chunks: takes effect only when pipeline.schedule is not a file");
  EXPECT_EQ(parts_without_effect(R"({"pipeline": {"partition": "uniform"}})"),
            "pipeline.partition: takes effect only when there is more than one stage");
}

// The rule for tensor ranks uses the width that the model is built with.
TEST(ParallelConfig, TheDefaultFeedForwardSizeIsTheModels) {
  for (const auto& [heads, hidden] : {std::pair{3, 768}, {5, 80}, {7, 56}}) {
    Config config;
    config.model = {.type = model::Type::Llama, .layers = 1, .hidden_size = hidden, .heads = heads, .tied_embedding = false};
    const model::Model built = model::build(model::with_vocabulary(config.model, 100));
    const auto parameters = built.layers[1]->parameters();
    const auto down = std::find_if(parameters.begin(), parameters.end(),
                                   [](const ParameterSpec& parameter) { return parameter.name == "mlp.down.weight"; });
    ASSERT_NE(down, parameters.end());
    config.parallel.tensor = heads;
    try {
      check(config);
      FAIL();
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("feed_forward_size " + std::to_string(down->shape[1]) + ", the default"),
                std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace trivet
