// A run with low-rank adapters has the bits of one rank on every layout, and leaves the base model as it is.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/adapters.h"
#include "tests/equivalence/tiny_run.h"
#include "tests/support/temporary_folder.h"

namespace trivet::test {
namespace {

Config lora_config(model::Type type, Reproducible reproducible = Reproducible::Layout) {
  Config config = tiny_config(type);
  config.reproducible = reproducible;
  config.model.lora = {.rank = 3, .alpha = 6, .targets = {"all-linear"}};
  if (type == model::Type::Llama) config.model.lora.targets = {"q_proj", "v_proj", "o_proj", "up_proj", "down_proj"};
  config.model.layers = 4;
  return config;
}

struct Layout {
  int pipeline, data, tensor, stage;
  ScheduleKind schedule = ScheduleKind::OneForwardOneBackward;
  Recompute recompute = Recompute::None;
};

TinyRun on(Config config, const Layout& layout) {
  config.parallel.pipeline = layout.pipeline;
  config.parallel.tensor = layout.tensor;
  config.zero.stage = layout.stage;
  config.pipeline.schedule = layout.schedule;
  config.recompute = layout.recompute;
  config.zero.overlap_comm = layout.stage == 3;
  return {.ranks = layout.pipeline * layout.data * layout.tensor, .steps = 3, .config = config};
}

std::string in_words(const Layout& l) {
  return fmt::format("pipeline {} data {} tensor {} stage {} {}", l.pipeline, l.data, l.tensor, l.stage, name_of(l.schedule));
}

TEST(Lora, TrainsTheAdaptersAndNothingElse) {
  for (const model::Type type : {model::Type::Gpt, model::Type::Llama}) {
    const Trace before = run({.ranks = 1, .steps = 0, .config = lora_config(type)});
    const Trace after = run({.ranks = 1, .steps = 3, .config = lora_config(type)});
    for (const auto& [name, values] : after.weights)
      EXPECT_EQ(values != before.weights.at(name), model::is_adapter(name)) << name;
    // New adapters add nothing.
    Config plain = lora_config(type);
    plain.model.lora = {};
    EXPECT_EQ(before.evaluation, run({.ranks = 1, .steps = 0, .config = plain}).evaluation);
    EXPECT_LT(loss_of(after, 2), loss_of(after, 0));
  }
}

TEST(Lora, HasEqualBitsOnEveryLayout) {
  for (const model::Type type : {model::Type::Gpt, model::Type::Llama})
    for (const bool bf16 : {false, true}) {
      Config config = lora_config(type);
      config.bf16.enabled = bf16;
      const Trace one = run({.ranks = 1, .steps = 3, .config = config});
      for (const Layout& layout : {Layout{2, 2, 2, 0},
                                   {2, 2, 2, 3},
                                   {1, 3, 1, 1},
                                   {1, 2, 1, 2, ScheduleKind::GPipe, Recompute::Full},
                                   {1, 1, 2, 0, ScheduleKind::GPipe, Recompute::Selective},
                                   {2, 1, 1, 2, ScheduleKind::ZeroBubbleH1}})
        EXPECT_EQ(difference(one, run(on(config, layout))), "") << in_words(layout) << (bf16 ? " bf16" : "");
    }
}

// Sequence parallelism, which layout mode does not have, adds in another order.
TEST(Lora, WithSequenceParallelismDiffersByRounding) {
  for (const model::Type type : {model::Type::Gpt, model::Type::Llama}) {
    Config config = lora_config(type, Reproducible::Run);
    const Trace one = run({.ranks = 1, .steps = 3, .config = config});
    config.parallel.sequence_parallel = true;
    for (const int stage : {0, 3}) {
      const Trace shared = run(on(config, {1, 2, 2, stage}));
      EXPECT_EQ(difference_beyond_rounding(one, shared), "");
      EXPECT_EQ(difference(shared, run(on(config, {2, 2, 2, stage, ScheduleKind::ZeroBubbleH1}))), "");
    }
  }
}

// A pipeline stage may have no adapter, so that it trains nothing.
TEST(Lora, StagesWithoutAdaptersPassGradientsOn) {
  Config config = lora_config(model::Type::Gpt);
  config.model.lora.targets = {"h.0.mlp.c_fc"};
  const Trace one = run({.ranks = 1, .steps = 3, .config = config});
  for (const int stage : {0, 3}) EXPECT_EQ(difference(one, run(on(config, {3, 1, 1, stage}))), "") << stage;
}

TEST(Lora, ResumesWithEqualBitsOnAnotherLayout) {
  const TemporaryFolder folder;
  Config config = lora_config(model::Type::Llama);
  config.bf16.enabled = true;
  TinyRun whole{.ranks = 1, .steps = 4, .config = config};
  const Trace expected = run(whole);
  TinyRun first = on(config, {2, 2, 1, 3}), second = on(config, {1, 1, 2, 2});
  first.steps = 2, second.steps = 4;
  first.save_to = second.load_from = folder.path();
  run(first);
  Trace resumed = run(second);
  resumed.loss_bits.insert(resumed.loss_bits.begin(), expected.loss_bits.begin(), expected.loss_bits.begin() + 2);
  resumed.grad_norms.insert(resumed.grad_norms.begin(), expected.grad_norms.begin(), expected.grad_norms.begin() + 2);
  EXPECT_EQ(difference(expected, resumed), "");
}

}  // namespace
}  // namespace trivet::test
