// Pipelines and tensor ranks compose with every ZeRO stage, every schedule and recomputation. In layout mode no axis changes a
// bit. In run mode only tensor size, data ranks and stage do, because they determine the order of sums.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <map>

#include "tests/equivalence/tiny_run.h"

namespace trivet::test {
namespace {

struct Model {
  const char* name;
  model::Type type;
  bool bf16, tied;
};

struct Case {
  int pipeline, data, stage;
  ScheduleKind schedule;
  Recompute recompute;
  int tensor = 1;
  bool sequence_parallel = false;
};

TinyRun with(Config config, const Case& c) {
  config.parallel.pipeline = c.pipeline;
  config.parallel.tensor = c.tensor;
  config.parallel.sequence_parallel = c.sequence_parallel;
  config.pipeline.schedule = c.schedule;
  config.zero.stage = c.stage;
  config.zero.overlap_comm = c.stage == 3;
  config.zero.stage3_max_reuse_distance = c.recompute == Recompute::Full ? 1'000'000'000 : 0;
  if (c.schedule == ScheduleKind::ZeroBubbleH1) config.zero.stage3_release = pipeline::UnshardRelease::Microbatch;
  config.recompute = c.recompute;
  config.partition_activations = c.tensor > 1;
  config.recompute_every = c.data;  // 1 or 2: cases with several data ranks recompute every second block
  return {.ranks = c.pipeline * c.data * c.tensor, .steps = 3, .config = config};
}

std::string to_string(const Case& c) {
  return fmt::format("pipeline {} data {} tensor {}{} stage {} {} recompute {}", c.pipeline, c.data, c.tensor,
                     c.sequence_parallel ? " sequence parallel" : "", c.stage, name_of(c.schedule), name_of(c.recompute));
}

class PipelineEquivalence : public testing::TestWithParam<Model> {
 protected:
  Config config(Reproducible reproducible) const {
    Config config = tiny_config(GetParam().type);
    config.model.layers = 6;  // 8 blocks: enough for 8 stages, uneven on 3
    config.model.tied_embedding = GetParam().tied;
    config.bf16.enabled = GetParam().bf16;
    config.reproducible = reproducible;
    return config;
  }
  // The reference for runs that only move work in time or place: no pipeline, but the same data ranks, tensor ranks and stage.
  const Trace& plain_run(const Case& c) {
    Trace& trace = plain_[{c.data, c.tensor, c.stage, c.sequence_parallel ? 1 : 0}];
    if (trace.loss_bits.empty())
      trace = run(with(config(Reproducible::Run), {1, c.data, c.stage, ScheduleKind::OneForwardOneBackward, Recompute::None,
                                                   c.tensor, c.sequence_parallel}));
    return trace;
  }

 private:
  std::map<std::array<int, 4>, Trace> plain_;
};

constexpr int kStages[] = {0, 1, 2, 3};
constexpr Recompute kRecomputes[] = {Recompute::None, Recompute::Full, Recompute::Selective};

// With TRIVET_WHOLE_MATRIX in the environment (scripts/equivalence --axes sets it) these are all combinations. Otherwise they
// are every schedule with every stage, spread over the other axes, and each stage with each recomputation; each of the five
// models takes every second of these, so that two or three models take each.
std::vector<Case> cases(const Model& model) {
  std::vector<Case> all, sample;
  for (ScheduleKind schedule : all_values<ScheduleKind>())
    for (int stage : kStages) {
      const int n = static_cast<int>(sample.size());
      sample.push_back({n % 3 == 0 ? 4 : n % 3 == 1 ? 2 : 3, 2 - n % 2, stage, schedule, kRecomputes[(n + n / 4 + 1) % 3]});
      for (int pipeline : {1, 2, 4})
        for (int data : {1, 2})
          for (Recompute recompute : kRecomputes) all.push_back({pipeline, data, stage, schedule, recompute});
    }
  if (std::getenv("TRIVET_WHOLE_MATRIX")) return all;
  std::vector<Case> half;
  for (size_t n = 0; n < sample.size(); ++n)
    if ((n + n / 4 + (model.bf16 ? 1 : 0) + (model.tied ? 1 : 0)) % 2 == 0) half.push_back(sample[n]);
  return half;
}

TEST_P(PipelineEquivalence, LayoutModeGivesTheBitsOfOneRank) {
  const Trace one = run({.ranks = 1, .steps = 3, .config = config(Reproducible::Layout)});
  for (const Case& c : cases(GetParam()))
    EXPECT_EQ(difference(one, run(with(config(Reproducible::Layout), c))), "") << to_string(c);
}

// The model has heads enough for 8 ranks.
TEST_P(PipelineEquivalence, LayoutModeGivesTheBitsOfOneRankForEveryTensorSize) {
  Config many_heads = config(Reproducible::Layout);
  many_heads.model.heads = 8;
  many_heads.model.key_value_heads = GetParam().type == model::Type::Llama ? 4 : 0;
  const Trace one = run({.ranks = 1, .steps = 3, .config = many_heads});
  for (Case c : cases(GetParam())) {
    if (c.pipeline == 3) c.pipeline = 1;
    for (int tensor : {2, 4}) {
      // The sample has 4 tensor ranks where there are few other ranks, and 2 where there are many.
      if (!std::getenv("TRIVET_WHOLE_MATRIX") && (tensor == 4) != (c.pipeline * c.data <= 2)) continue;
      c.tensor = tensor;
      EXPECT_EQ(difference(one, run(with(many_heads, c))), "") << to_string(c);
    }
  }
  if (GetParam().type == model::Type::Gpt) {
    const Case eight{1, 1, 0, ScheduleKind::OneForwardOneBackward, Recompute::None, 8};
    EXPECT_EQ(difference(one, run(with(many_heads, eight))), "") << to_string(eight);
  }
}

TEST_P(PipelineEquivalence, RunModeGivesTheBitsOfTheSameDataRanksAndStage) {
  for (const Case& c : cases(GetParam())) {
    const Trace& reference = plain_run(c);
    EXPECT_EQ(difference(reference, run(with(config(Reproducible::Run), c))), "") << to_string(c);
  }
}

// In run mode the tensor size determines the order of sums, so runs with the same tensor size have the same bits.
TEST_P(PipelineEquivalence, RunModeGivesTheBitsOfTheSameTensorRanksToo) {
  for (Case c : cases(GetParam())) {
    if (c.pipeline == 3) c.pipeline = 1;  // 12 ranks would be many threads for little gain
    c.tensor = 2;
    c.sequence_parallel = (c.stage + static_cast<int>(c.schedule)) % 2 == 1;
    const Trace& reference = plain_run(c);
    EXPECT_EQ(difference(reference, run(with(config(Reproducible::Run), c))), "") << to_string(c);
  }
}

// The training is the same except for the order of sums. The first step's losses differ by rounding, later ones by what Adam
// makes of that: it divides gradients by their own size, so a relative difference of 1e-6 in a tiny gradient may be 1e-4 of a
// step.
TEST_P(PipelineEquivalence, TensorRanksAgreeButForRounding) {
  const Trace one = run({.ranks = 1, .steps = 3, .config = config(Reproducible::Run)});
  const double rounding = GetParam().bf16 ? 0x1p-8 : 0x1p-23;
  for (const Case& c : {Case{1, 1, 0, ScheduleKind::OneForwardOneBackward, Recompute::None, 2},
                        Case{1, 2, 3, ScheduleKind::OneForwardOneBackward, Recompute::None, 2},
                        Case{2, 1, 1, ScheduleKind::ZeroBubbleH1, Recompute::Full, 4},
                        Case{2, 2, 2, ScheduleKind::Interleaved, Recompute::None, 4},
                        Case{1, 1, 0, ScheduleKind::OneForwardOneBackward, Recompute::None, 2, true},
                        Case{2, 1, 3, ScheduleKind::ZeroBubbleH1, Recompute::Full, 4, true},
                        Case{1, 2, 2, ScheduleKind::OneForwardOneBackward, Recompute::None, 2, true}}) {
    const Trace split = run(with(config(Reproducible::Run), c));
    EXPECT_NEAR(loss_of(split, 0), loss_of(one, 0), 8 * rounding * loss_of(one, 0)) << to_string(c);
    EXPECT_NEAR(split.grad_norms[0], one.grad_norms[0], 16 * rounding * one.grad_norms[0]) << to_string(c);
    EXPECT_NEAR(loss_of(split, 2), loss_of(one, 2), (GetParam().bf16 ? 0.03 : 3e-4) * loss_of(one, 2)) << to_string(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PipelineEquivalence,
                         testing::Values(Model{"gpt_fp32_tied", model::Type::Gpt, false, true},
                                         Model{"gpt_bf16_tied", model::Type::Gpt, true, true},
                                         Model{"gpt_fp32_untied", model::Type::Gpt, false, false},
                                         Model{"llama_fp32_untied", model::Type::Llama, false, false},
                                         Model{"llama_bf16_tied", model::Type::Llama, true, true}),
                         [](const auto& which) { return which.param.name; });

}  // namespace
}  // namespace trivet::test
