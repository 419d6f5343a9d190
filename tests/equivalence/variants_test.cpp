// Tests equal bits on every layout for every optimizer, for fp16 with its loss scale, and for each way to split communication.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "tests/equivalence/tiny_run.h"
#include "tests/support/optimizer_types.h"

namespace trivet::test {
namespace {

Config layout_config(model::Type type = model::Type::Llama) {
  Config config = tiny_config(type);
  config.reproducible = Reproducible::Layout;
  return config;
}

TEST(TinyRun, Learns) {
  TinyRun tiny{.ranks = 1, .steps = 30, .config = tiny_config(model::Type::Gpt)};
  const Trace trace = run(tiny);
  EXPECT_NEAR(loss_of(trace, 0), std::log(61.0), 0.15);  // an untrained model guesses evenly
  EXPECT_LT(loss_of(trace, 29), 2.5f);
}

// The equality tests are worth something only if they can fail.
TEST(TinyRun, RunModeDiffersBetweenRankCountsAndSeedsDiffer) {
  Config config = tiny_config(model::Type::Gpt);
  const Trace one = run({.ranks = 1, .config = config});
  EXPECT_NE(difference(one, run({.ranks = 4, .config = config})), "");
  config.training.seed = 1;
  EXPECT_NE(difference(one, run({.ranks = 1, .config = config})), "");
}

TEST(TinyRun, LayoutModeAgreesWithRunModeButForRounding) {
  const Trace rounded = run({.ranks = 1, .config = layout_config()});
  const Trace plain = run({.ranks = 1, .config = tiny_config(model::Type::Llama)});
  // One grid step is 2^-44 and sums of 12 float32 gradients differ by a few units in the last place; Adam's first steps divide
  // gradients by themselves, so that a difference of 1e-6 of a tiny gradient may become 1e-4 of the step.
  for (size_t step = 0; step < plain.loss_bits.size(); ++step) EXPECT_NEAR(loss_of(rounded, step), loss_of(plain, step), 2e-4f);
}

class EveryOptimizer : public testing::TestWithParam<OptimizerType> {};

TEST_P(EveryOptimizer, GivesTheSameBitsOnEveryLayout) {
  Config config = layout_config();
  config.optimizer.type = GetParam();
  config.optimizer.momentum = 0.9;
  config.bf16.enabled = true;
  const Trace one = run({.ranks = 1, .config = config});
  EXPECT_LT(loss_of(one, 3), loss_of(one, 0) + 0.5f);
  for (const auto& [ranks, stage] : {std::pair{2, 0}, {2, 1}, {3, 2}, {4, 3}}) {
    config.zero.stage = stage;
    EXPECT_EQ(difference(one, run({.ranks = ranks, .config = config})), "") << ranks << " ranks, stage " << stage;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EveryOptimizer, testing::ValuesIn(all_values<OptimizerType>()),
                         [](const auto& which) { return std::string(name_of(which.param)); });

// All optimizers but Muon, which needs whole matrices (tests/engine/plan_test.cpp). The model has tied tables and parameters
// that every tensor rank holds whole; LAMB's norms count those once.
class OptimizerOnTensorRanks : public testing::TestWithParam<OptimizerType> {};

TEST_P(OptimizerOnTensorRanks, GivesTheBitsOfOneRank) {
  Config config = layout_config(model::Type::Gpt);
  config.optimizer.type = GetParam();
  config.optimizer.momentum = 0.9;
  config.bf16.enabled = true;
  const Trace one = run({.ranks = 1, .config = config});
  for (const auto& [tensor, data, stage] : {std::array{2, 1, 0}, {2, 2, 3}, {4, 1, 1}}) {
    config.parallel.tensor = tensor;
    config.zero.stage = stage;
    EXPECT_EQ(difference(one, run({.ranks = tensor * data, .config = config})), "")
        << "tensor " << tensor << ", data " << data << ", stage " << stage;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, OptimizerOnTensorRanks, testing::ValuesIn(test::optimizer_types_of_tensor_ranks()),
                         [](const auto& which) { return std::string(name_of(which.param)); });

constexpr ScheduleKind kHalves = ScheduleKind::ZeroBubbleH1;

// A layout for options of models.
struct Divided {
  int tensor = 1, pipeline = 1, context = 1, data = 1, stage = 0;
  Recompute recompute = Recompute::None;
  ContextKind kind = ContextKind::Ulysses;
  ScheduleKind schedule = ScheduleKind::OneForwardOneBackward;
  bool sequence_parallel = false;
};

// The options change something, and layouts do not.
void expect_bits_of_one_rank(Config config, const std::vector<Divided>& layouts) {
  config.parallel.context_grain = 4;
  Config without = layout_config();
  without.parallel.context_grain = 4;
  without.bf16.enabled = config.bf16.enabled;
  const Trace one = run({.ranks = 1, .config = config});
  EXPECT_NE(difference(one, run({.ranks = 1, .config = without})), "");
  for (const Divided& layout : layouts) {
    Config divided = config;
    divided.parallel.tensor = layout.tensor;
    divided.parallel.pipeline = layout.pipeline;
    divided.parallel.context = layout.context;
    divided.parallel.context_kind = layout.kind;
    divided.parallel.sequence_parallel = layout.sequence_parallel;
    divided.zero.stage = layout.stage;
    divided.recompute = layout.recompute;
    divided.pipeline.schedule = layout.schedule;
    const int ranks = layout.tensor * layout.pipeline * layout.context * layout.data;
    EXPECT_EQ(difference(one, run({.ranks = ranks, .config = divided})), "")
        << fmt::format("tensor {}, pipeline {}, context {}, data {}, stage {}{}", layout.tensor, layout.pipeline,
                       layout.context, layout.data, layout.stage, config.bf16.enabled ? ", bf16" : "");
  }
}

// What descendants of Llama have that it has not, together.
TEST(OptionsOfLlama, GiveTheBitsOfOneRankInLayoutMode) {
  Config config = layout_config();
  config.model.head_size = 12;
  config.model.qkv_bias = true;
  config.model.qk_norm = true;
  config.model.attention_window = 5;
  config.model.rotary_share = 0.5;
  config.model.rotary_scaling = {.type = model::RotaryScalingType::Llama3, .factor = 4, .original_length = 64};
  config.model.full_attention_every = 2;
  config.model.window_rotary_base = 100;
  config.model.embedding_scale = 5;
  config.model.gate_activation = model::GateActivation::Gelu;
  config.model.post_norm = true;
  for (const bool bf16 : {false, true}) {
    config.bf16.enabled = bf16;
    expect_bits_of_one_rank(
        config, {{.tensor = 2}, {.pipeline = 2, .data = 2, .stage = 3}, {.tensor = 2, .pipeline = 2, .data = 2, .stage = 1}});
  }
}

// Those of Gemma 2, Phi-3 with long sequences and Qwen 2.5, with recomputation of attention.
TEST(OptionsOfLlama, WithLimitsAndLongRotationGiveTheBitsOfOneRankInLayoutMode) {
  Config config = layout_config();
  config.model.query_scale_size = 3;
  config.model.attention_sinks = true;
  config.model.attention_soft_cap = 0.3;
  config.model.logits_soft_cap = 1.5;
  config.model.attention_window = 5;
  config.model.full_attention_every = 2;
  config.model.post_norm = true;
  config.model.rotary_scaling = {
      .type = model::RotaryScalingType::Yarn, .factor = 4, .high_frequency_factor = 32, .original_length = 64};
  for (const bool bf16 : {false, true}) {
    config.bf16.enabled = bf16;
    expect_bits_of_one_rank(config, {{.tensor = 2, .recompute = Recompute::Selective},
                                     {.pipeline = 2, .data = 2, .stage = 3, .recompute = Recompute::Full},
                                     {.tensor = 2, .pipeline = 2, .data = 2, .stage = 1, .recompute = Recompute::Selective}});
  }
}

// Those of SmolLM3, Seed-OSS, Granite, OLMo 2 and 3, EXAONE 4 and Ministral 3. Queries are scaled only where all layers rotate.
TEST(OptionsOfLlama, OfLaterModelsGiveTheBitsOfOneRankInLayoutMode) {
  Config config = layout_config();
  config.model.out_bias = true;
  config.model.qk_norm = true;
  config.model.qk_norm_over = model::QkNormSpan::Projection;
  config.model.pre_norm = false;
  config.model.post_norm = true;
  config.model.residual_scale = 0.3;
  config.model.logits_scaling = 3;
  config.model.query_temperature_length = 3;
  for (const auto& [bf16, scaled] : {std::pair{false, false}, {true, false}, {false, true}}) {
    config.bf16.enabled = bf16;
    config.model.query_temperature = scaled ? 0.4 : 0;
    config.model.no_rotary_every = scaled ? 0 : 2;
    expect_bits_of_one_rank(
        config, {{.tensor = 2, .recompute = Recompute::Selective},
                 {.tensor = 2, .pipeline = 2, .data = 2, .stage = 1, .recompute = Recompute::Selective, .schedule = kHalves},
                 {.context = 2, .data = 2, .stage = 3, .recompute = Recompute::Full},
                 {.tensor = 2, .context = 2, .stage = 2, .recompute = Recompute::Selective, .kind = ContextKind::Gather}});
  }
}

// Multi-head latent attention, with and without a latent of queries.
TEST(OptionsOfLlama, LatentsGiveTheBitsOfOneRankInLayoutMode) {
  Config config = layout_config();
  config.model.heads = config.model.key_value_heads = 8;
  config.model.head_size = 6;
  config.model.latent_attention = {.query_rank = 10, .key_value_rank = 7, .rotary_size = 2, .value_size = 5};
  for (const bool bf16 : {false, true}) {
    config.bf16.enabled = bf16;
    if (bf16) config.model.latent_attention.query_rank = config.model.latent_attention.value_size = 0;
    expect_bits_of_one_rank(
        config, {{.tensor = 4, .stage = 1, .recompute = Recompute::Selective},
                 {.tensor = 2, .pipeline = 2, .data = 2, .stage = 2, .schedule = kHalves, .sequence_parallel = true},
                 {.context = 2, .data = 2, .stage = 3, .recompute = Recompute::Full},
                 {.tensor = 2, .context = 2, .recompute = Recompute::Selective},
                 {.context = 4, .stage = 3, .kind = ContextKind::Gather}});
  }
}

// The axes of a run and how its ranks divide parameters (engine/sharing.h).
struct ShardSizes {
  int pipeline = 1, tensor = 1, data = 1, stage = 3;
  int64_t shards = -1, secondary = 1;
};

Config with_sizes(Config config, const ShardSizes& sizes) {
  config.parallel.pipeline = sizes.pipeline;
  config.parallel.tensor = sizes.tensor;
  config.zero.stage = sizes.stage;
  config.zero.mics_shard_size = sizes.shards;
  config.zero.zero_hpz_partition_size = sizes.secondary;
  config.zero.stage3_param_persistence_threshold = 100;
  config.zero.stage3_max_reuse_distance = 0;  // each use gathers
  return config;
}

// Runs of 2 of 4 or 6 ranks, or of 1; the tied tables of the GPT have gradients from two blocks, and with a pipeline from two
// ranks.
TEST(ShardSizes, GiveTheBitsOfOneRankInLayoutMode) {
  for (const model::Type type : {model::Type::Gpt, model::Type::Llama})
    for (const bool bf16 : {false, true}) {
      Config config = layout_config(type);
      config.bf16.enabled = bf16;
      const Trace one = run({.ranks = 1, .config = config});
      for (const ShardSizes& sizes : {ShardSizes{.data = 4, .stage = 1, .shards = 2},
                                      {.data = 4, .stage = 2, .shards = 2},
                                      {.data = 4, .shards = 2},
                                      {.data = 6, .shards = 2},
                                      {.data = 6, .shards = 3},
                                      {.data = 4, .stage = 2, .shards = 1},
                                      {.data = 4, .shards = 1},
                                      {.data = 4, .secondary = 2},
                                      {.data = 6, .secondary = 3},
                                      {.data = 4, .secondary = 4},
                                      {.data = 12, .shards = 6, .secondary = 2},
                                      {.tensor = 2, .data = 4, .shards = 2},
                                      {.tensor = 2, .data = 4, .secondary = 2},
                                      {.pipeline = 2, .data = 4, .stage = 2, .shards = 2},
                                      {.pipeline = 2, .data = 4, .shards = 2, .secondary = 1},
                                      {.pipeline = 2, .data = 4, .secondary = 2}})
        EXPECT_EQ(
            difference(one, run({.ranks = sizes.pipeline * sizes.tensor * sizes.data, .config = with_sizes(config, sizes)})),
            "")
            << fmt::format("{}{}: pipeline {}, tensor {}, data {}, stage {}, shards {}, secondary {}", name_of(type),
                           bf16 ? " bf16" : "", sizes.pipeline, sizes.tensor, sizes.data, sizes.stage, sizes.shards,
                           sizes.secondary);
    }
}

// Run mode sums the same gradients in another order if shards have replicas. A second copy of weights changes no sum.
TEST(ShardSizes, ChangeNoBitOfWeightsThatAreGatheredFromASecondCopy) {
  for (const bool overlap : {false, true}) {
    Config config = tiny_config(model::Type::Gpt);
    config.zero.overlap_comm = overlap;
    const ShardSizes plain{.data = 4};
    const Trace all = run({.ranks = 4, .config = with_sizes(config, plain)});
    EXPECT_EQ(difference(all, run({.ranks = 4, .config = with_sizes(config, {.data = 4, .secondary = 2})})), "");
    config.zero.allgather_bucket_size = 3000;
    EXPECT_EQ(difference(all, run({.ranks = 4, .config = with_sizes(config, {.data = 4, .secondary = 2})})), "");
  }
}

// What validation computes before each step of a run on 4 ranks: with few and with many microbatches, and twice.
std::vector<double> evaluations(const Config& config) {
  std::vector<double> losses;
  const auto evaluate = [&](Engine& engine, int rank, int64_t step) {
    const int64_t length = engine.model().sample.input[0];
    std::vector<int32_t> tokens(length);
    const auto make = [&](int64_t i) {
      for (int64_t t = 0; t < length; ++t) tokens[t] = static_cast<int32_t>((step + 11 * i + 5 * rank + 3 * t) % 61);
      const ConstTensorView view{tokens.data(), DType::Int32, {1, length}};
      return Microbatch{view, view, 0};
    };
    for (const int microbatches : {1, 3, 3}) {
      const double loss = engine.evaluate(microbatches, make).loss;
      if (rank == 0) losses.push_back(loss);
    }
  };
  run({.ranks = 4, .before_step = evaluate, .config = config});
  return losses;
}

// A validation makes a second copy, too. The next one may not gather from it, because a step has changed the weights.
TEST(ShardSizes, ChangeNoBitOfAValidationBetweenSteps) {
  for (const bool overlap : {false, true}) {
    Config config = tiny_config(model::Type::Gpt);
    config.zero.overlap_comm = overlap;
    const std::vector<double> plain = evaluations(with_sizes(config, {.data = 4}));
    ASSERT_EQ(plain.size(), 12u);
    EXPECT_EQ(plain[1], plain[2]) << "the same twice";
    EXPECT_NE(plain[2], plain[5]) << "weights have changed";
    EXPECT_EQ(plain, evaluations(with_sizes(config, {.data = 4, .secondary = 2})));
    EXPECT_EQ(plain, evaluations(with_sizes(config, {.data = 4, .secondary = 4})));
  }
}

TEST(ShardSizes, OfRunModeDifferByRoundingOnly) {
  const Config config = tiny_config(model::Type::Gpt);
  const auto run_with = [&](const ShardSizes& sizes) {
    return run({.ranks = sizes.data, .steps = 3, .config = with_sizes(config, sizes)});
  };
  const Trace all = run_with({.data = 4});
  for (const int stage : {1, 2, 3})
    for (const int shards : {1, 2}) {
      const Trace replicated = run_with({.data = 4, .stage = stage, .shards = shards});
      EXPECT_EQ(difference_beyond_rounding(all, replicated), "") << "stage " << stage << ", shards " << shards;
    }
}

// ---- ZeRO++'s rounded messages

Config quantized_weights(Config config, int ranks_of_copy = 1) {
  config.zero.zero_quantized_weights = true;
  return with_sizes(config, {.secondary = ranks_of_copy});
}

// A layer's weights are rounded in blocks that no shard cuts, on one rank as well.
TEST(QuantizedWeights, GiveTheSameBitsOnEveryLayoutThatHasTheirStage) {
  for (const model::Type type : {model::Type::Gpt, model::Type::Llama})
    for (const bool bf16 : {false, true}) {
      Config config = layout_config(type);
      config.bf16.enabled = bf16;
      const Trace exact = run({.ranks = 1, .config = with_sizes(config, {})});
      const Trace one = run({.ranks = 1, .config = quantized_weights(config)});
      EXPECT_NE(difference(exact, one), "") << "nothing is rounded";
      for (size_t step = 0; step < 4; ++step) EXPECT_NEAR(loss_of(one, step), loss_of(exact, step), 0.05f);
      for (const int ranks : {2, 3, 4})
        EXPECT_EQ(difference(one, run({.ranks = ranks, .config = quantized_weights(config)})), "");
      EXPECT_EQ(difference(one, run({.ranks = 4, .config = quantized_weights(config, 2)})), "");
      Config stages = quantized_weights(config);
      stages.parallel.pipeline = 2;
      for (const int ranks : {2, 4}) EXPECT_EQ(difference(one, run({.ranks = ranks, .config = stages})), "") << name_of(type);
    }
}

TEST(QuantizedWeights, OfFrozenLayersOnlyLeaveTheOthersAsTheyAre) {
  Config config = with_sizes(layout_config(), {});
  const Trace exact = run({.ranks = 1, .config = config});
  config.zero.zero_quantized_nontrainable_weights = true;
  EXPECT_EQ(difference(exact, run({.ranks = 2, .config = config})), "");
  const Trace frozen = run({.ranks = 1, .frozen = {"blocks.1"}, .config = config});
  EXPECT_EQ(difference(frozen, run({.ranks = 3, .frozen = {"blocks.1"}, .config = config})), "");
  Config all = config;
  all.zero.zero_quantized_weights = true;
  EXPECT_NE(difference(frozen, run({.ranks = 1, .frozen = {"blocks.1"}, .config = all})), "");
  config.zero.zero_quantized_nontrainable_weights = false;
  EXPECT_NE(difference(frozen, run({.ranks = 1, .frozen = {"blocks.1"}, .config = config})), "");
}

// Gradients of 4 bits are coarse, but a step's direction is that of exact ones. One and two hops round in different places.
TEST(QuantizedGradients, LearnAsExactOnesDo) {
  for (const model::Type type : {model::Type::Gpt, model::Type::Llama})
    for (const int stage : {1, 2, 3}) {
      Config config = with_sizes(tiny_config(type), {.stage = stage});
      const Trace exact = run({.ranks = 4, .steps = 30, .config = config});
      config.zero.zero_quantized_gradients = true;
      const Trace one_hop = run({.ranks = 4, .steps = 30, .config = config});
      EXPECT_NE(difference(exact, one_hop), "");
      EXPECT_NEAR(loss_of(one_hop, 29), loss_of(exact, 29), 0.1f) << name_of(type) << ", stage " << stage;
      if (stage < 3) continue;
      config.zero.zero_hpz_partition_size = 2;
      const Trace two_hops = run({.ranks = 4, .steps = 30, .config = config});
      EXPECT_NE(difference(one_hop, two_hops), "");
      EXPECT_NEAR(loss_of(two_hops, 29), loss_of(exact, 29), 0.1f) << name_of(type);
      config.zero.overlap_comm = true;
      EXPECT_EQ(difference(two_hops, run({.ranks = 4, .steps = 30, .config = config})), "");
      config.zero.reduce_bucket_size = 3000;
      config.zero.allgather_bucket_size = 3000;
      EXPECT_EQ(difference(two_hops, run({.ranks = 4, .steps = 30, .config = config})), "");
    }
}

// A frozen layer still passes the gradient on, so the layers before it learn.
TEST(FrozenLayers, KeepTheirBitsAndTheLayoutPromise) {
  for (const model::Type type : {model::Type::Gpt, model::Type::Llama}) {
    const Trace untrained = run({.ranks = 1, .steps = 0, .config = layout_config(type)});
    const Trace one = run({.ranks = 1, .frozen = {"blocks.1"}, .config = layout_config(type)});
    int changed = 0;
    for (const auto& [name, values] : one.weights) {
      if (name.starts_with("blocks.1.")) {
        EXPECT_EQ(values, untrained.weights.at(name)) << name;
      } else {
        changed += values != untrained.weights.at(name);
      }
    }
    EXPECT_GT(changed, 6);
    for (const auto& [ranks, stage] : {std::pair{2, 1}, {3, 2}, {2, 3}, {4, 3}}) {
      Config config = layout_config(type);
      config.zero.stage = stage;
      EXPECT_EQ(difference(one, run({.ranks = ranks, .frozen = {"blocks.1"}, .config = config})), "")
          << ranks << " ranks, stage " << stage;
    }
  }
}

// Sequence parallelism changes the order of sums in run mode; stages and schedules do not.
TEST(FrozenLayers, KeepTheirBitsWithSequenceParallelism) {
  for (const model::Type type : {model::Type::Gpt, model::Type::Llama})
    for (const std::string frozen : {"blocks.0", "blocks.1"}) {
      const auto run_with = [&](int ranks, const Config& config) {
        return run({.ranks = ranks, .steps = 3, .frozen = {frozen}, .config = config});
      };
      Config config = tiny_config(type);
      const Trace untrained = run({.ranks = 1, .steps = 0, .config = config}), one = run_with(1, config);
      config.parallel.tensor = 2;
      config.parallel.sequence_parallel = true;
      for (const int stage : {0, 3}) {
        const std::string which = fmt::format("{} of {}, stage {}", frozen, name_of(type), stage);
        config.zero.stage = stage;
        const Trace shared = run_with(4, config);
        for (const auto& [name, values] : shared.weights)
          EXPECT_EQ(values == untrained.weights.at(name), name.starts_with(frozen)) << name << ", " << which;
        EXPECT_EQ(difference_beyond_rounding(one, shared), "") << which;
        Config stages = config;
        stages.parallel.pipeline = 2;
        stages.pipeline.schedule = ScheduleKind::ZeroBubbleH1;  // computes gradients of weights separately
        EXPECT_EQ(difference(shared, run_with(8, stages)), "") << which;
      }
    }
}

// If a rank has one microbatch, gradients are not kept as integers (zero/parameter_group.h), except those of a tied table (the
// GPT's), which gets two contributions per microbatch.
TEST(OneContribution, GivesTheBitsOfSeveral) {
  for (const model::Type type : {model::Type::Llama, model::Type::Gpt})
    for (const bool bf16 : {false, true}) {
      Config config = layout_config(type);
      config.bf16.enabled = bf16;
      config.batch.micro_batch_size = 3;
      const Trace one = run({.ranks = 1, .config = config});
      for (const int stage : {0, 1, 2, 3}) {
        config.zero.stage = stage;
        EXPECT_EQ(difference(one, run({.ranks = 4, .config = config})), "") << name_of(type) << ", stage " << stage;
      }
      config.zero.stage = 0;
      config.batch.train_batch_size = 3;
      const Trace alone = run({.ranks = 1, .config = config});
      config.recompute = Recompute::Full;
      EXPECT_EQ(difference(alone, run({.ranks = 1, .threads = 2, .config = config})), "") << name_of(type);
    }
}

// The scale starts so high that gradients overflow, and is halved until they do not (now and then later on, too). Until then
// nothing is updated.
TEST(Fp16, SkipsOnAllRanksTogetherAndGoesOnWithTheSameBits) {
  Config config = layout_config(model::Type::Gpt);
  config.fp16.enabled = true;
  config.fp16.initial_scale_power = 24;
  config.fp16.hysteresis = 1;
  const Trace one = run({.ranks = 1, .steps = 14, .config = config});
  const auto& norms = one.grad_norms;
  const auto first_clean = std::find_if(norms.begin(), norms.end(), [](double norm) { return std::isfinite(norm); });
  const auto skipped = static_cast<int64_t>(first_clean - norms.begin());
  ASSERT_GT(skipped, 0);
  ASSERT_LT(skipped, 10);
  const Trace untrained = run({.ranks = 1, .steps = 0, .config = config});
  EXPECT_EQ(run({.ranks = 1, .steps = skipped, .config = config}).weights, untrained.weights);
  EXPECT_NE(run({.ranks = 1, .steps = skipped + 1, .config = config}).weights, untrained.weights);
  EXPECT_LT(loss_of(one, 13), loss_of(one, 0) - 0.3f);
  config.zero.stage = 2;
  for (const auto& [tensor, data] : {std::pair{1, 3}, {2, 2}, {4, 1}}) {
    config.parallel.tensor = tensor;
    EXPECT_EQ(difference(one, run({.ranks = tensor * data, .steps = 14, .config = config})), "") << "tensor " << tensor;
  }
}

TEST(Communication, PiecesBroadcastsAndAllReducesChangeNoBit) {
  for (int stage : {0, 1, 2, 3}) {
    Config config = tiny_config(model::Type::Gpt);
    config.zero.stage = stage;
    const Trace plain = run({.ranks = 3, .config = config});
    Config pieces = config;
    pieces.zero.reduce_bucket_size = 2000;
    pieces.zero.allgather_bucket_size = 3000;
    pieces.zero.sub_group_size = 512;
    EXPECT_EQ(difference(plain, run({.ranks = 3, .config = pieces})), "") << "small buckets, stage " << stage;
    Config other = config;
    other.zero.reduce_scatter = false;
    other.zero.allgather_partitions = false;
    EXPECT_EQ(difference(plain, run({.ranks = 3, .config = other})), "") << "all_reduce and broadcast, stage " << stage;
    Config live = config;
    live.zero.stage3_max_live_parameters = 1;
    live.zero.stage3_prefetch_bucket_size = 0;
    live.zero.overlap_comm = true;
    EXPECT_EQ(difference(plain, run({.ranks = 3, .config = live})), "") << "nothing kept or prefetched, stage " << stage;
  }
}

TEST(Accumulation, LargerMicrobatchesAreAnotherRoundingButTheSameStep) {
  Config config = layout_config();
  config.model.dropout = 0;
  const Trace ones = run({.ranks = 1, .steps = 1, .config = config});
  config.batch.micro_batch_size = 4;
  const Trace fours = run({.ranks = 3, .steps = 1, .config = config});
  EXPECT_NEAR(loss_of(ones, 0), loss_of(fours, 0), 1e-6f);                          // same samples, losses summed exactly
  EXPECT_NEAR(ones.grad_norms[0], fours.grad_norms[0], 1e-6 * ones.grad_norms[0]);  // mean of equal-sized means
}

}  // namespace
}  // namespace trivet::test
