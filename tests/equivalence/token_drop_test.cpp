// Random layerwise token dropping: equal bits on every layout, what a step computes, and what the tokens that are left out get.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"
#include "kernels/kernels.h"
#include "kernels/observed_kernels.h"
#include "model/dropped_tokens.h"
#include "model/transformer_block.h"
#include "tests/equivalence/tiny_run.h"
#include "tests/support/temporary_folder.h"

namespace trivet::test {
namespace {

// Blocks 1 and 2 of 4 leave tokens out: of 16, they compute 8 in steps 0 and 1, 12 in steps 2 and 3, then all.
Config dropping_tokens(model::Type type) {
  Config config = tiny_config(type);
  config.reproducible = Reproducible::Layout;
  config.model.layers = 4;
  EXPECT_EQ(config.model.sequence_length, 16);
  config.model.token_drop = {.enabled = true, .blocks = {1, 2}, .min_tokens = 8, .max_tokens = 16, .steps = 4, .multiple = 4};
  return config;
}

TEST(TokenDrop, KeepsMoreTokensStepByStep) {
  const model::TokenDrop drop = dropping_tokens(model::Type::Gpt).model.token_drop;
  for (const auto& [step, tokens] : {std::pair<int64_t, int64_t>{0, 8}, {1, 8}, {2, 12}, {3, 12}, {4, 16}, {1000, 16}})
    EXPECT_EQ(model::kept_tokens(drop, step), tokens) << step;
  EXPECT_EQ(model::steps_of_new_kept_tokens(drop), (std::vector<int64_t>{0, 2, 4}));
  EXPECT_EQ(model::kept_tokens({.enabled = true, .min_tokens = 15, .max_tokens = 15, .steps = 4, .multiple = 4}, 0), 15)
      << "as in DeepSpeed, which does not round a number that stays";
  const model::Description end = model::with_most_tokens(dropping_tokens(model::Type::Gpt).model);
  EXPECT_EQ(model::kept_tokens(end.token_drop, 0), 16);
}

TEST(TokenDrop, GivesTheSameBitsOnEveryLayout) {
  for (const model::Type type : {model::Type::Gpt, model::Type::Llama}) {
    Config config = dropping_tokens(type);
    config.model.dropout = 0.1;
    const Trace one = run({.ranks = 1, .steps = 6, .config = config});
    struct Ranks {
      int pipeline, tensor, data, stage;
      ScheduleKind schedule = ScheduleKind::OneForwardOneBackward;
      Recompute recompute = Recompute::None;
    };
    for (const Ranks& layout : {Ranks{1, 1, 4, 3},
                                {2, 1, 2, 1, ScheduleKind::ZeroBubbleH1},
                                {2, 2, 1, 0, ScheduleKind::OneForwardOneBackward, Recompute::Full},
                                {1, 2, 2, 2, ScheduleKind::OneForwardOneBackward, Recompute::Selective}}) {
      config.parallel.pipeline = layout.pipeline;
      config.parallel.tensor = layout.tensor;
      config.zero.stage = layout.stage;
      config.pipeline.schedule = layout.schedule;
      config.recompute = layout.recompute;
      const int ranks = layout.pipeline * layout.tensor * layout.data;
      EXPECT_EQ(difference(one, run({.ranks = ranks, .steps = 6, .config = config})), "")
          << fmt::format("{}: pipeline {}, tensor {}, data {}, stage {}", name_of(type), layout.pipeline, layout.tensor,
                         layout.data, layout.stage);
    }
  }
}

TEST(TokenDrop, IsTheSameAfterARestart) {
  const TemporaryFolder folder;
  const Config config = dropping_tokens(model::Type::Llama);
  const Trace whole = run({.ranks = 2, .steps = 5, .config = config});
  run({.ranks = 2, .steps = 3, .save_to = folder.path(), .config = config});
  EXPECT_EQ(run({.ranks = 2, .steps = 5, .load_from = folder.path(), .config = config}).weights, whole.weights);
}

TEST(TokenDrop, OfAllTokensChangesNothing) {
  Config config = dropping_tokens(model::Type::Llama);
  config.model.token_drop.min_tokens = 16;
  const Trace all = run({.ranks = 1, .steps = 2, .config = config});
  config.model.token_drop = {};
  EXPECT_EQ(difference(all, run({.ranks = 1, .steps = 2, .config = config})), "");
}

// A step that leaves out few tokens needs more memory than one that leaves out none, because it moves the others.
TEST(TokenDrop, APlanHasTheMemoryOfStepsThatLeaveOutFewTokens) {
  for (const bool recompute : {false, true}) {
    Config config = dropping_tokens(model::Type::Llama);
    config.recompute = recompute ? Recompute::Full : Recompute::None;
    config.model.token_drop.blocks = {0, 1, 2, 3};
    config.model.token_drop.min_tokens = 15;
    config.model.token_drop.multiple = 1;
    config.model.token_drop.steps = 1;
    EXPECT_NO_THROW(run({.ranks = 1, .steps = 2, .config = config}));
  }
}

struct CountsOperations final : kernels::KernelObserver {
  void ended(const kernels::KernelCall& call) override {
    if (call.kernel == std::string("matmul")) operations += call.flops;
  }
  double operations = 0;
};

double operations_of_a_step(const Config& config) {
  CountsOperations counter;
  run({.ranks = 1, .steps = 1, .observer = [&](int) { return &counter; }, .config = config});
  return counter.operations;
}

// In the first step the two blocks compute half of their tokens. That is three products of a matrix, forward and backward; the
// run also evaluates as many samples, which is a fourth one, of all tokens.
TEST(TokenDrop, ABlockComputesTheTokensThatAreLeft) {
  Config config = dropping_tokens(model::Type::Llama);
  const double dropping = operations_of_a_step(config);
  config.model.token_drop = {};
  const double all = operations_of_a_step(config);
  config.model.layers = 2;
  const double without_two_blocks = operations_of_a_step(config);
  EXPECT_DOUBLE_EQ(dropping, all - 0.75 * (all - without_two_blocks) / 2);
}

// The block computes the chosen tokens as if there were no others, at their places in the whole sequence.
TEST(DroppedTokens, TokensThatAreLeftOutPassUnchanged) {
  const model::TokenDrop drop{.enabled = true, .min_tokens = 3, .max_tokens = 3, .steps = 1, .multiple = 1};
  const auto options = [] {
    return model::TransformerBlock::Options{.attention = {.hidden = 8, .heads = 2, .key_value_heads = 2, .rotary_base = 100},
                                            .mlp = {.hidden = 8, .feed_forward = 8}};
  };
  const model::DroppedTokens layer("b", drop, std::make_unique<model::TransformerBlock>("b", options()));
  const auto kernels = kernels::make_cpu_kernels(1);
  MemoryMeter meter;
  Arena arena("test", host_allocator(), meter, MemoryCategory::Activations, 1 << 20);
  std::vector<std::vector<double>> memory;
  std::vector<ConstTensorView> weights;
  for (const ParameterSpec& parameter : layer.parameters()) {
    memory.emplace_back(parameter.shape.elements());
    for (size_t e = 0; e < memory.back().size(); ++e) memory.back()[e] = std::sin(static_cast<double>(e + 3 * memory.size()));
    weights.push_back({memory.back().data(), DType::Float64, parameter.shape});
  }
  constexpr int64_t kTokens = 6, kWidth = 8;
  std::vector<double> x(kTokens * kWidth), y(x.size());
  for (size_t e = 0; e < x.size(); ++e) x[e] = std::cos(static_cast<double>(e));
  const Shape shape{1, kTokens, kWidth};
  const auto run_forward = [&](const Layer& of, const std::vector<double>& in, const Shape& in_shape,
                               ConstTensorView positions) {
    Context context{.kernels = *kernels, .arena = arena};
    context.random = {.seed = 5, .step = 0, .first_sample = 9};
    context.positions = positions;
    std::vector<double> out(in.size());
    Saved saved;
    of.forward(context, weights, {in.data(), DType::Float64, in_shape}, {out.data(), DType::Float64, in_shape}, saved);
    return out;
  };
  y = run_forward(layer, x, shape, {});
  std::vector<int32_t> chosen;
  for (int32_t token = 0; token < kTokens; ++token)
    if (!std::equal(x.begin() + token * kWidth, x.begin() + (token + 1) * kWidth, y.begin() + token * kWidth))
      chosen.push_back(token);
  std::vector<int32_t> drawn(3);
  kernels->choose_tokens({.chosen = {drawn.data(), DType::Int32, {1, 3}},
                          .sequence = kTokens,
                          .key = random_key(5, "b.token_drop"),
                          .first_sample = 9});
  ASSERT_EQ(chosen, drawn) << "the others pass unchanged";
  std::vector<double> some;
  for (const int32_t token : chosen) some.insert(some.end(), x.begin() + token * kWidth, x.begin() + (token + 1) * kWidth);
  const model::TransformerBlock block("b", options());
  const auto expected = run_forward(block, some, {1, 3, kWidth}, {chosen.data(), DType::Int32, {1, 3}});
  for (size_t k = 0; k < chosen.size(); ++k)
    for (int64_t col = 0; col < kWidth; ++col)
      EXPECT_EQ(y[chosen[k] * kWidth + col], expected[k * kWidth + col]) << "token " << chosen[k];
}

}  // namespace
}  // namespace trivet::test
