// Biases of routers: what a step makes of them, whatever ranks, precision, recomputation and evaluations there are.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/equivalence/tiny_run.h"
#include "tests/support/temporary_folder.h"

namespace trivet::test {
namespace {

constexpr const char* kBias = ".mlp.router.correction_bias";
constexpr double kRate = 0.001;

Config biased_config() {
  Config config = tiny_config(model::Type::Llama);
  config.model.heads = config.model.key_value_heads = 8;
  config.model.experts = {.count = 8,
                          .per_token = 2,
                          .feed_forward_size = 8,
                          .rule = {.score = kernels::ExpertScore::Sigmoid, .scale = 1.5, .groups = 2, .groups_per_token = 1},
                          .correction_bias = true,
                          .bias_update_rate = kRate};
  config.zero.stage3_param_persistence_threshold = 0;
  return config;
}

// The biases after a step with these counts.
std::vector<float> moved(std::vector<float> bias, const ExpertLoad& load) {
  const int64_t experts = static_cast<int64_t>(bias.size());
  for (size_t e = 0; e < bias.size(); ++e) {
    const int64_t lack = load.total() - experts * load.tokens[e];
    bias[e] += static_cast<float>(kRate) * static_cast<float>((lack > 0) - (lack < 0));
  }
  return bias;
}

struct BalancedRun {
  std::string name;
  int ranks = 1;
  std::function<void(Config&)> change = [](Config&) {};
};

// An evaluation in between, whose tokens do not count.
void evaluate(Engine& engine) {
  std::vector<int32_t> tokens(16, 3);
  const ConstTensorView sequence{tokens.data(), DType::Int32, {1, 16}};
  engine.evaluate(1, [&](int64_t) { return Microbatch{sequence, sequence}; });
}

TEST(ExpertBalance, MovesBiasesByTheTokensOfAllRanksAndMicrobatches) {
  const BalancedRun runs[] = {
      {"one rank in float32"},
      {"one rank", 1, [](Config& c) { c.bf16.enabled = true; }},
      {"recomputation", 1,
       [](Config& c) {
         c.bf16.enabled = true;
         c.recompute = Recompute::Full;
       }},
      {"shards, of which two have biases, and experts on several ranks", 4,
       [](Config& c) {
         c.bf16.enabled = true;
         c.model.experts.count = 300;
         c.zero.stage = 3;
         c.parallel.expert = 2;
         c.audit.weights_every = 1;
       }},
      {"optimizer states on the host, tensor and pipeline ranks", 4,
       [](Config& c) {
         c.bf16.enabled = true;
         c.zero.stage = 2;
         c.parallel.tensor = c.parallel.pipeline = 2;
         c.zero.offload_optimizer.device = OffloadDevice::Cpu;
         c.audit.weights_every = 1;
       }},
      {"quantized weights", 2,
       [](Config& c) {
         c.bf16.enabled = true;
         c.zero.stage = 3;
         c.zero.zero_quantized_weights = true;
       }},
  };
  for (const BalancedRun& described : runs) {
    SCOPED_TRACE(described.name);
    TinyRun tiny{.ranks = described.ranks, .steps = 1, .config = biased_config()};
    described.change(tiny.config);
    if (described.ranks == 1) tiny.before_step = [](Engine& engine, int, int64_t) { evaluate(engine); };
    const Trace first = run(tiny);
    tiny.steps = 3;
    const Trace third = run(tiny);
    tiny.steps = 2;
    const Trace second = run(tiny);
    ASSERT_EQ(first.experts.size(), 2U);
    int changed = 0;
    for (size_t block = 0; block < 2; ++block) {
      const std::string name = first.experts[block].layer + kBias;
      const std::vector<float> start(first.experts[block].tokens.size(), 0.0F), after = moved(start, first.experts[block]);
      EXPECT_EQ(first.weights.at(name), after);
      EXPECT_EQ(second.weights.at(name), moved(after, second.experts[block]));
      EXPECT_EQ(third.weights.at(name), moved(second.weights.at(name), third.experts[block]));
      for (const float bias : third.weights.at(name)) changed += bias != 0 && static_cast<float>(bfloat16(bias)) != bias;
    }
    EXPECT_GT(changed, 0) << "no bias shows whether it was rounded to bfloat16";
  }
}

// The second copy of weights (hpZ) lasts until the step changes them: the evaluation after it must not see the old biases.
TEST(ExpertBalance, AnEvaluationAfterAStepHasItsBiasesWithASecondCopyOfWeights) {
  TinyRun one{.steps = 2, .config = biased_config()};
  one.config.reproducible = Reproducible::Layout;
  one.config.model.experts.bias_update_rate = 0.2;
  TinyRun copied = one;
  copied.ranks = 4;
  copied.config.zero.stage = 3;
  copied.config.zero.zero_hpz_partition_size = 2;
  copied.config.zero.stage3_release = pipeline::UnshardRelease::Use;  // so that a step gathers each block several times
  EXPECT_EQ(difference(run(one), run(copied)), "");
}

TEST(ExpertBalance, LeavesBiasesInAStepThatIsSkipped) {
  TinyRun tiny{.steps = 1, .config = biased_config()};
  tiny.config.fp16.enabled = true;
  tiny.config.fp16.initial_scale_power = 40;  // gradients overflow
  const Trace skipped = run(tiny);
  tiny.config.fp16.initial_scale_power = 4;
  const Trace applied = run(tiny);
  for (const ExpertLoad& block : applied.experts) {
    EXPECT_EQ(skipped.weights.at(block.layer + kBias), std::vector<float>(8, 0.0F));
    EXPECT_EQ(applied.weights.at(block.layer + kBias), moved(std::vector<float>(8, 0.0F), block));
  }
}

// DeepSeek-V3 ended its training without updates.
TEST(ExpertBalance, ARunMayBeResumedWithAnotherRate) {
  const TemporaryFolder folder;
  TinyRun first{.steps = 1, .save_to = folder.path(), .config = biased_config()};
  const Trace saved = run(first);
  TinyRun rest{.steps = 2, .load_from = folder.path(), .config = biased_config()};
  rest.config.model.experts.bias_update_rate = 0;
  for (const char* block : {"blocks.0", "blocks.1"}) {
    const std::vector<float>& bias = saved.weights.at(std::string(block) + kBias);
    EXPECT_NE(bias, std::vector<float>(8, 0.0F));
    EXPECT_EQ(run(rest).weights.at(std::string(block) + kBias), bias);
  }
}

TEST(ExpertBalance, LeavesBiasesWithoutARateAndWithAdapters) {
  TinyRun tiny{.steps = 2, .config = biased_config()};
  tiny.config.model.experts.bias_update_rate = 0;
  TinyRun adapted{.steps = 2, .config = biased_config()};
  adapted.config.model.lora = {.rank = 2, .alpha = 4, .targets = {"q_proj"}};
  for (const TinyRun& still : {tiny, adapted})
    EXPECT_EQ(run(still).weights.at(std::string("blocks.0") + kBias), std::vector<float>(8, 0.0F));
}

}  // namespace
}  // namespace trivet::test
