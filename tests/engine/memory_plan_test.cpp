// The plan's memory is what a run needs, to the byte, for configs drawn at random.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "comm/world.h"
#include "core/error.h"
#include "engine/config/context_kind.h"
#include "engine/config/explain.h"
#include "engine/config/load.h"
#include "engine/engine.h"
#include "tests/engine/measured_run.h"
#include "tests/engine/random_configs.h"
#include "tests/support/optimizer_types.h"
#include "tests/support/temporary_folder.h"

namespace trivet {
namespace {

const std::vector<Choice>& choices() {
  static const std::vector<Choice> all{{"model.type", {"gpt", "llama"}},
                                       {"model.layers", {"2", "4", "7"}},
                                       {"model.key_value_heads", {"2", "4"}},
                                       {"model.tied_embedding", {"true", "false"}},
                                       {"model.dropout", {"0", "0.1"}},
                                       {"model.experts.count", {"0", "0", "0", "4"}},
                                       {"parallel.pipeline", {"1", "2", "3", "4"}},
                                       {"parallel.tensor", {"1", "2", "4"}},
                                       {"parallel.sequence_parallel", {"true", "false"}},
                                       {"parallel.context", {"1", "1", "2"}},
                                       {"parallel.context_kind", {"auto", "gather", "ring"}},
                                       {"parallel.context_grain", {"1", "4"}},
                                       {"data.packing", {"stream", "isolated"}},
                                       {"pipeline.schedule", {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-2p", "zb-v"}},
                                       {"pipeline.chunks", {"0", "0", "1", "2", "3"}},
                                       {"train_batch_size", {"6", "12", "24"}},
                                       {"train_micro_batch_size_per_gpu", {"1", "2", "3"}},
                                       {"bf16.enabled", {"true", "false"}},
                                       {"fp16.enabled", {"true", "false", "false"}},
                                       {"data_types.grad_accum_dtype", {"fp32", "bf16", "null", "null"}},
                                       {"optimizer.type", test::optimizer_names()},
                                       {"reproducible", {"run", "layout"}},
                                       {"activation_checkpointing.mode", {"none", "selective", "full"}},
                                       {"activation_checkpointing.every", {"1", "2"}},
                                       {"activation_checkpointing.partition_activations", {"true", "false"}},
                                       {"activation_checkpointing.cpu_checkpointing", {"true", "false", "false"}},
                                       {"activation_checkpointing.mlp_slice_tokens", {"0", "0", "0", "1", "3"}},
                                       {"zero_optimization.stage", {"0", "1", "2", "3", "3"}},
                                       {"zero_optimization.mics_shard_size", {"-1", "-1", "-1", "-1", "1", "2"}},
                                       {"zero_optimization.zero_hpz_partition_size", {"1", "2"}},
                                       {"zero_optimization.zero_quantized_weights", {"false", "false", "true"}},
                                       {"zero_optimization.zero_quantized_nontrainable_weights", {"false", "true"}},
                                       {"zero_optimization.zero_quantized_gradients", {"false", "false", "true"}},
                                       {"zero_optimization.overlap_comm", {"true", "false"}},
                                       {"zero_optimization.reduce_bucket_size", {"1500", "500000000"}},
                                       {"zero_optimization.allgather_bucket_size", {"1500", "500000000"}},
                                       {"zero_optimization.sub_group_size", {"1000", "1000000000"}},
                                       {"zero_optimization.stage3_param_persistence_threshold", {"0", "100"}},
                                       {"zero_optimization.stage3_prefetch_bucket_size", {"0", "6000"}},
                                       {"zero_optimization.stage3_max_reuse_distance", {"0", "1000000000"}},
                                       {"zero_optimization.stage3_release", {"distance", "use", "microbatch", "step"}},
                                       {"zero_optimization.offload_optimizer.device", {"none", "none", "cpu", "nvme"}},
                                       {"zero_optimization.offload_optimizer.ratio", {"1", "1", "0.5"}},
                                       {"zero_optimization.offload_optimizer.pipeline_read", {"true", "false"}},
                                       {"zero_optimization.offload_optimizer.pipeline_write", {"true", "false"}},
                                       {"zero_optimization.offload_param.device", {"none", "none", "none", "cpu", "nvme"}},
                                       {"zero_optimization.offload_param.max_in_cpu", {"0", "2000", "1000000000"}},
                                       {"zero_optimization.offload_param.buffer_size", {"500", "100000000"}}};
  return all;
}

// The situations that result from the choices together.
std::set<std::string> situations(const Plan& plan) {
  const Config& config = plan.config;
  const int pipeline = plan.mesh.size(Axis::Pipeline), data = plan.mesh.size(Axis::Data), tensor = plan.mesh.size(Axis::Tensor);
  std::set<std::string> names{fmt::format("pipeline {} data {} tensor {}", pipeline, data, tensor)};
  const auto add_if = [&](bool holds, const std::string& name) {
    if (holds) names.insert(name);
  };
  add_if(pipeline > 1, fmt::format("{} on several ranks", name_of(config.pipeline.schedule)));
  add_if(data > 1, fmt::format("stage {} on several data ranks", config.zero.stage));
  add_if(pipeline > 1 && data > 1 && config.zero.stage == 3, "stage 3 in a pipeline");
  const bool has_tie = std::ranges::any_of(
      plan.channels(), [](const ChannelSpec& c) { return c.purpose == Purpose::Tied && !c.stage_pairs.empty(); });
  add_if(has_tie, "a weight on two ranks");
  add_if(tensor > 1 && config.parallel.sequence_parallel, "sequence parallelism");
  const int context = plan.mesh.size(Axis::Context);
  add_if(context > 1 && data > 1, "context ranks of several data ranks");
  add_if(context > 1 && config.fixes_token_sums(), "leaves of context ranks");
  add_if(tensor > 1 && config.parallel.sequence_parallel && config.fixes_token_sums(), "leaves of tensor ranks");
  add_if(context > 1 && config.model.isolated_documents, "documents of context ranks");
  add_if(config::context_kind(config) == ContextKind::Gather, "context ranks that gather keys");
  add_if(config::context_kind(config) == ContextKind::Ring, "context ranks in a ring");
  add_if(config::context_kind(config) == ContextKind::Gather && config.fixes_token_sums(),
         "leaves of context ranks that gather keys");
  add_if(context > 1 && tensor > 1, "context ranks with tensor ranks");
  add_if(context > 1 && pipeline > 1, "context ranks in a pipeline");
  add_if(context > 1 && config.recompute == Recompute::Selective, "context ranks that recompute attention");
  add_if(config.partitions_inputs(), "partitioned inputs");
  if (config.mlp_slice_tokens > 0) {
    add_if(config.fixes_token_sums(), "slices of leaves");
    add_if(tensor > 1 && config.parallel.sequence_parallel, "slices with sequence parallelism");
    add_if(pipeline > 1 && config.pipeline.schedule == ScheduleKind::ZeroBubbleH1, "slices of which weights come later");
    add_if(config.recompute == Recompute::Full, "slices of recomputed blocks");
  }
  add_if(plan.batch.gradient_accumulation_steps == 1, "one microbatch");
  add_if(plan.sharding().replicas > 1, "shards with replicas");
  add_if(plan.sharding().secondary > 1, "a second copy of weights");
  add_if(plan.ranks[0].state_file.bytes > 0, "states in a file");
  add_if(plan.ranks[0].weight_file.bytes > 0, "weights in a file");
  return names;
}

const std::vector<std::string> kSituations{"pipeline 1 data 1 tensor 1",
                                           "pipeline 1 data 2 tensor 1",
                                           "pipeline 1 data 3 tensor 1",
                                           "pipeline 1 data 4 tensor 1",
                                           "pipeline 1 data 1 tensor 2",
                                           "pipeline 1 data 2 tensor 2",
                                           "pipeline 1 data 1 tensor 4",
                                           "pipeline 2 data 1 tensor 1",
                                           "pipeline 2 data 2 tensor 1",
                                           "pipeline 2 data 1 tensor 2",
                                           "pipeline 3 data 1 tensor 1",
                                           "pipeline 4 data 1 tensor 1",
                                           "gpipe on several ranks",
                                           "1f1b on several ranks",
                                           "interleaved on several ranks",
                                           "zb-h1 on several ranks",
                                           "zb-2p on several ranks",
                                           "zb-v on several ranks",
                                           "stage 0 on several data ranks",
                                           "stage 1 on several data ranks",
                                           "stage 2 on several data ranks",
                                           "stage 3 on several data ranks",
                                           "stage 3 in a pipeline",
                                           "a weight on two ranks",
                                           "sequence parallelism",
                                           "context ranks of several data ranks",
                                           "leaves of context ranks",
                                           "leaves of tensor ranks",
                                           "documents of context ranks",
                                           "context ranks that gather keys",
                                           "context ranks in a ring",
                                           "leaves of context ranks that gather keys",
                                           "context ranks with tensor ranks",
                                           "context ranks in a pipeline",
                                           "context ranks that recompute attention",
                                           "partitioned inputs",
                                           "slices of leaves",
                                           "slices with sequence parallelism",
                                           "slices of which weights come later",
                                           "slices of recomputed blocks",
                                           "one microbatch",
                                           "shards with replicas",
                                           "a second copy of weights",
                                           "states in a file",
                                           "weights in a file"};

class MemoryPlan : public ::testing::Test {
 protected:
  // Null if the engine refuses the draw, which is counted by its reason.
  std::optional<Plan> plan(const Draw& draw) {
    const std::string fixed = fmt::format(R"({{
      "model": {{"hidden_size": 32, "heads": 4, "sequence_length": 8, "vocabulary": 37}},
      "fp16": {{"initial_scale_power": 4}},
      "zero_optimization": {{"offload_optimizer": {{"nvme_path": "{0}", "buffer_count": 12}},
                             "offload_param": {{"nvme_path": "{0}"}}}}
    }})",
                                          folder_.path());
    try {
      const Config config = parse_config(fixed, "drawn.json", draw.overrides);
      return make_plan(config, model_as_configured(config), draw.ranks);
    } catch (const ConfigError& error) {
      const std::string message = error.what();
      ++refused_[message.substr(0, message.find(' ', message.find(": ") + 2))];
      return std::nullopt;
    }
  }

  const test::TemporaryFolder folder_;
  std::map<std::string, int> refused_;
};

TEST_F(MemoryPlan, IsWhatRandomConfigsNeedToTheByte) {
  const int wanted = number_from("TRIVET_RANDOM_RUNS", 100), most_draws = 60 * wanted;
  Dice dice;
  std::set<std::string> reached;
  int runs = 0, draws = 0;
  for (; runs < wanted && draws < most_draws; ++draws) {
    const int ranks = 1 + static_cast<int>(dice.below(4));
    const Draw draw{ranks, dice.overrides(choices())};
    const std::optional<Plan> plan = this->plan(draw);
    if (!plan) continue;
    ++runs;
    reached.insert(draw.overrides.begin(), draw.overrides.end());
    reached.merge(situations(*plan));
    EXPECT_NO_THROW(expect_measured_as_planned(*plan));  // an arena that is too small throws
    ASSERT_FALSE(HasFailure()) << "draw " << draws << ", " << draw.ranks << " ranks of\n" << explain_as_json(plan->config);
  }
  EXPECT_EQ(runs, wanted);
  for (const Choice& choice : choices())
    for (const std::string& value : choice.values)
      EXPECT_TRUE(reached.contains(choice.key + "=" + value)) << choice.key << " " << value;
  for (const std::string& situation : kSituations) EXPECT_TRUE(reached.contains(situation)) << situation;
  fmt::print("{} configs ran, {} were refused:", runs, draws - runs);
  for (const auto& [reason, count] : refused_) fmt::print(" {} {}", count, reason);
  fmt::print("\n");
}

// Two ranks exchange heads, and there are two such runs: too many ranks at once for the draws above.
TEST_F(MemoryPlan, OfRunsOfContextRanksIsWhatRandomConfigsNeedToTheByte) {
  constexpr int kRunsOfRings = 25;
  Dice dice;
  std::set<std::string> reached;
  int runs = 0;
  for (int draws = 0; runs < kRunsOfRings && draws < 60 * kRunsOfRings; ++draws) {
    Draw draw{1 + static_cast<int>(dice.below(4)), dice.overrides(choices())};
    const int tensor = draws % 4 == 1 ? 2 : 1, pipeline = draws % 4 == 2 ? 2 : 1, data = draws % 4 == 3 ? 2 : 1;
    draw.ranks = 4 * tensor * pipeline * data;
    draw.set("parallel.tensor", std::to_string(tensor));
    draw.set("parallel.pipeline", std::to_string(pipeline));
    draw.set("parallel.context", "4");
    draw.set("parallel.context_kind", "ulysses_ring");
    draw.set("parallel.context_ulysses", "2");
    draw.set("reproducible", "run");
    draw.set("data.packing", "stream");
    const std::optional<Plan> plan = this->plan(draw);
    if (!plan) continue;
    ++runs;
    reached.merge(situations(*plan));
    EXPECT_NO_THROW(expect_measured_as_planned(*plan));
    ASSERT_FALSE(HasFailure()) << "draw " << draws << ", " << draw.ranks << " ranks of\n" << explain_as_json(plan->config);
  }
  EXPECT_EQ(runs, kRunsOfRings);
  for (const char* situation :
       {"context ranks of several data ranks", "context ranks with tensor ranks", "sequence parallelism",
        "context ranks in a pipeline", "context ranks that recompute attention"})
    EXPECT_TRUE(reached.contains(situation)) << situation;
}

// However routers divide the tokens: the draws' weights are random, and rows that a rank sends another are never equally many.
TEST_F(MemoryPlan, OfRanksThatShareExpertsIsWhatRandomConfigsNeedToTheByte) {
  constexpr int kRuns = 20;
  Dice dice;
  std::set<std::string> reached;
  int runs = 0;
  for (int draws = 0; runs < kRuns && draws < 60 * kRuns; ++draws) {
    Draw draw{1 + static_cast<int>(dice.below(4)), dice.overrides(choices())};
    const int tensor = draws % 4 == 1 ? 2 : 1, pipeline = draws % 4 == 2 ? 2 : 1;
    const int expert = draws % 3 == 0 ? 4 : 2, context = draws % 4 == 3 ? 2 : draws % 8 == 0 ? 4 : 1;
    draw.ranks = std::max(4 * tensor * pipeline, expert * context);
    draw.set("model.type", "llama");
    draw.set("model.experts.count", "4");
    draw.set("parallel.expert", std::to_string(expert));
    draw.set("parallel.tensor", std::to_string(tensor));
    draw.set("parallel.pipeline", std::to_string(pipeline));
    draw.set("parallel.context", std::to_string(context));
    draw.set("parallel.sequence_parallel", "false");
    draw.set("activation_checkpointing.mlp_slice_tokens", "0");
    if (context > 1 && dice.below(3) > 0) {
      draw.set("reproducible", "layout");
      draw.set("parallel.context_grain", "4");
    }
    const std::optional<Plan> plan = this->plan(draw);
    if (!plan) continue;
    ++runs;
    reached.merge(situations(*plan));
    if (context > 1) reached.insert(expert < context ? "sums over ranks with the same experts" : "sums of rounds");
    reached.insert(fmt::format("expert {}", expert));
    reached.insert(fmt::format("stage {}", plan->config.zero.stage));
    EXPECT_NO_THROW(expect_measured_as_planned(*plan));
    ASSERT_FALSE(HasFailure()) << "draw " << draws << ", " << draw.ranks << " ranks of\n" << explain_as_json(plan->config);
  }
  EXPECT_EQ(runs, kRuns);
  for (const char* situation : {"expert 2", "expert 4", "stage 0", "stage 1", "stage 2", "stage 3",
                                "sums over ranks with the same experts", "sums of rounds"})
    EXPECT_TRUE(reached.contains(situation)) << situation;
}

// Losses and layers that take scratch memory, too: the CTC loss needs more for longer texts.
TEST_F(MemoryPlan, OfModelsOfImagesIsWhatTheyNeedToTheByte) {
  const auto plan_with = [](const std::string& network, const std::string& more) {
    const Config config = parse_config(fmt::format(R"({{
      "model": {{"type": "sequential", "input": [1, 12, 12], "network": [{}]}},
      "train_batch_size": 12, "train_micro_batch_size_per_gpu": 3, {}
    }})",
                                                   network, more),
                                       "images.json");
    return make_plan(config, model_as_configured(config), 2);
  };
  std::vector<int64_t> activations;
  for (const std::string network :
       {R"("conv 4 padding 1", "batch_norm", "relu", "max_pool 2", "dropout 0.1", "flatten", "dense 5")",
        R"("patches 12 size 2", "positions", "block 2", "layer_norm", "mean", "dense 5")", R"("columns", "dense 6", "ctc 1")",
        R"("columns", "dense 6", "ctc 6")"})
    for (const std::string more :
         {R"("parallel": {"pipeline": 1})", R"("parallel": {"pipeline": 2})",
          R"("parallel": {"pipeline": 1}, "zero_optimization": {"stage": 3})",
          R"("parallel": {"pipeline": 2}, "pipeline": {"schedule": "zb-h1"}, "reproducible": "layout")"}) {
      const Plan plan = plan_with(network, more);
      EXPECT_NO_THROW(expect_measured_as_planned(plan));
      ASSERT_FALSE(HasFailure()) << network << " " << more;
      activations.push_back(plan.heaviest().memory[MemoryCategory::Activations]);
    }
  // Longer texts need more scratch memory, which shows where nothing else needs more at another moment.
  int grown = 0;
  for (size_t i = activations.size() - 4; i < activations.size(); ++i) {
    EXPECT_GE(activations[i], activations[i - 4]);
    grown += activations[i] > activations[i - 4] ? 1 : 0;
  }
  EXPECT_GT(grown, 0);
}

// They have references for each token of whole sequences.
TEST_F(MemoryPlan, OfPairsOfDocumentsIsWhatTheyNeedToTheByte) {
  for (const auto& [ranks, layout] : std::vector<std::pair<int, std::vector<std::string>>>{
           {1, {}},
           {2, {"parallel.context=2"}},
           {4, {"parallel.context=2", "parallel.pipeline=2", "reproducible=layout", "parallel.context_grain=4"}},
           {4, {"parallel.context=2", "parallel.tensor=2", "zero_optimization.stage=3"}}}) {
    std::vector<std::string> overrides{"training.objective=dpo", "data.packing=isolated", "train_batch_size=4",
                                       "train_micro_batch_size_per_gpu=2"};
    overrides.insert(overrides.end(), layout.begin(), layout.end());
    const std::optional<Plan> plan = this->plan({ranks, overrides});
    ASSERT_TRUE(plan);
    EXPECT_NO_THROW(expect_measured_as_planned(*plan));
    ASSERT_FALSE(HasFailure()) << ranks << " ranks of\n" << explain_as_json(plan->config);
  }
}

TEST_F(MemoryPlan, CountsWhatAuditsNeedToTheByte) {
  const auto plan_with = [&](const char* every_steps, int stage, const char* pipeline, const char* tensor, const char* bf16) {
    return *this->plan({4,
                        {fmt::format("audit.every_steps={}", every_steps), fmt::format("zero_optimization.stage={}", stage),
                         fmt::format("parallel.pipeline={}", pipeline), fmt::format("parallel.tensor={}", tensor),
                         fmt::format("bf16.enabled={}", bf16), "reproducible=layout", "model.layers=2", "train_batch_size=8",
                         "train_micro_batch_size_per_gpu=1", "zero_optimization.stage3_param_persistence_threshold=40"}});
  };
  int larger = 0;
  for (const int stage : {0, 1, 2, 3})
    for (const auto& [pipeline, tensor] : {std::pair{"1", "1"}, {"2", "1"}, {"1", "2"}, {"2", "2"}, {"4", "1"}})
      for (const char* bf16 : {"false", "true"}) {
        const Plan audited = plan_with("1", stage, pipeline, tensor, bf16);
        EXPECT_NO_THROW(expect_measured_as_planned(audited));
        const Plan plain = plan_with("0", stage, pipeline, tensor, bf16);
        EXPECT_EQ(audited.ranks[0].step_counters.launches, plain.ranks[0].step_counters.launches);  // those of other steps
        larger += audited.heaviest().memory.total() > plain.heaviest().memory.total();
      }
  EXPECT_GT(larger, 0);
}

// The plan rehearses one data rank. Lamb's norms are over parts of parameters, and each data rank has different parts.
TEST_F(MemoryPlan, IsTheSameOnAllDataRanks) {
  for (const char* pipeline : {"1", "2"})
    for (const char* model : {"gpt", "llama"})
      for (const char* layers : {"1", "2"})
        for (const char* tied : {"true", "false"})
          for (const char* bf16 : {"true", "false"})
            for (const char* sub_group : {"1000", "1000000000"}) {
              const std::optional<Plan> plan = this->plan(
                  {4,
                   {fmt::format("parallel.pipeline={}", pipeline), fmt::format("model.type={}", model),
                    fmt::format("model.layers={}", layers), fmt::format("model.tied_embedding={}", tied),
                    fmt::format("bf16.enabled={}", bf16), fmt::format("zero_optimization.sub_group_size={}", sub_group),
                    "zero_optimization.stage=1", "optimizer.type=Lamb", "train_batch_size=4",
                    "train_micro_batch_size_per_gpu=1", "zero_optimization.offload_optimizer.device=nvme",
                    "zero_optimization.offload_optimizer.buffer_count=16",
                    "zero_optimization.offload_optimizer.pipeline_read=true",
                    "zero_optimization.offload_optimizer.pipeline_write=true"}});
              ASSERT_TRUE(plan);
              EXPECT_NO_THROW(expect_measured_as_planned(*plan));
              ASSERT_FALSE(HasFailure()) << "4 ranks of\n" << explain_as_json(plan->config);
            }
}

}  // namespace
}  // namespace trivet
