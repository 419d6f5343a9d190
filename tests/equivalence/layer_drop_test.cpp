// Progressive layer drop: the formula of its shares, what a step that leaves blocks out computes, and equal bits on every
// layout.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/make_plan.h"
#include "kernels/observed_kernels.h"
#include "model/dropped_layer.h"
#include "tests/equivalence/tiny_run.h"
#include "tests/support/temporary_folder.h"

namespace trivet::test {
namespace {

using model::DroppedLayer;
using model::keep_probability;
using model::LayerDrop;

TEST(LayerDrop, SharesAreThoseOfTheFormula) {
  const LayerDrop drop{.enabled = true, .theta = 0.5, .gamma = 0.01};
  EXPECT_DOUBLE_EQ(keep_probability(drop, 4, 4, 0), 1);
  EXPECT_DOUBLE_EQ(keep_probability(drop, 4, 4, 100), 0.5 + 0.5 * std::exp(-1.0));
  EXPECT_DOUBLE_EQ(keep_probability(drop, 1, 4, 100), 1 - 0.25 * (0.5 - 0.5 * std::exp(-1.0)));
  EXPECT_NEAR(keep_probability(drop, 4, 4, 100'000), 0.5, 1e-12);
  EXPECT_DOUBLE_EQ(keep_probability({.enabled = true}, 4, 4, 1000), 1) << "theta is 1 by default";
}

DroppedLayer last_of_four(const char* name) {
  return {{.name = name, .drop = {.enabled = true, .theta = 0.25, .gamma = 1}, .block = 4, .blocks = 4}, nullptr};
}

// 4,000 draws of probability 1/4: five standard deviations are 137.
TEST(LayerDrop, ABlockIsKeptAsOftenAsItsShareSays) {
  const DroppedLayer layer = last_of_four("blocks.3"), other = last_of_four("blocks.2");
  int kept = 0, as_other = 0;
  for (int step = 100; step < 4100; ++step) {
    const RandomSite site{.seed = 1, .step = static_cast<double>(step)};
    kept += layer.keeps(site);
    as_other += layer.keeps(site) == other.keeps(site);
    RandomSite of_other_samples = site;
    of_other_samples.first_sample = 7;
    EXPECT_EQ(layer.keeps(site), layer.keeps(of_other_samples)) << "all microbatches of a step draw the same";
  }
  EXPECT_NEAR(kept, 1000, 137);
  EXPECT_NEAR(as_other, 4000 * (0.25 * 0.25 + 0.75 * 0.75), 160) << "blocks draw independently";
}

Config dropping(model::Type type) {
  Config config = tiny_config(type);
  config.reproducible = Reproducible::Layout;
  config.model.layers = 4;
  config.model.layer_drop = {.enabled = true, .theta = 0.3, .gamma = 2};
  return config;
}

TEST(LayerDrop, GivesTheSameBitsOnEveryLayout) {
  for (const model::Type type : {model::Type::Gpt, model::Type::Llama}) {
    Config config = dropping(type);
    const Trace one = run({.ranks = 1, .steps = 6, .config = config});
    struct Layout {
      int pipeline, tensor, data, stage;
      ScheduleKind schedule = ScheduleKind::OneForwardOneBackward;
      Recompute recompute = Recompute::None;
    };
    for (const Layout& layout : {Layout{1, 1, 4, 3},
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

TEST(LayerDrop, IsTheSameAfterARestart) {
  const TemporaryFolder folder;
  const Config config = dropping(model::Type::Gpt);
  const Trace whole = run({.ranks = 2, .steps = 6, .config = config});
  run({.ranks = 2, .steps = 3, .save_to = folder.path(), .config = config});
  EXPECT_EQ(run({.ranks = 2, .steps = 6, .load_from = folder.path(), .config = config}).weights, whole.weights);
}

TEST(LayerDrop, WithShareOneDiffersByRoundingOnly) {
  Config config = dropping(model::Type::Gpt);
  config.reproducible = Reproducible::Run;
  config.model.layer_drop.theta = 1;
  const Trace kept = run({.ranks = 1, .steps = 3, .config = config});
  config.model.layer_drop = {};
  EXPECT_EQ(difference_beyond_rounding(kept, run({.ranks = 1, .steps = 3, .config = config})), "");
}

// From step 1 on the last block is as good as never kept, so SGD does not move it; the blocks before it do move.
TEST(LayerDrop, ABlockThatIsLeftOutHasNoGradient) {
  for (const ScheduleKind schedule : {ScheduleKind::OneForwardOneBackward, ScheduleKind::ZeroBubbleH1}) {
    Config config = dropping(model::Type::Gpt);
    config.model.layer_drop = {.enabled = true, .theta = 1e-9, .gamma = 50};
    config.pipeline.schedule = schedule;
    config.parallel.pipeline = 2;
    config.optimizer.type = OptimizerType::Sgd;
    config.optimizer.weight_decay = 0;
    for (const Reproducible mode : {Reproducible::Run, Reproducible::Layout}) {
      config.reproducible = mode;
      const Trace one = run({.ranks = 2, .steps = 1, .config = config}), five = run({.ranks = 2, .steps = 5, .config = config});
      for (const auto& [name, values] : one.weights) {
        if (name.starts_with("blocks.3.")) {
          EXPECT_EQ(values, five.weights.at(name)) << name;
        }
      }
      EXPECT_NE(one.weights.at("blocks.0.mlp.up.weight"), five.weights.at("blocks.0.mlp.up.weight"));
    }
  }
}

struct CountsProducts final : kernels::KernelObserver {
  void asked(const kernels::Matmul&) override { ++products; }
  void ended(const kernels::KernelCall&) override {}
  int64_t products = 0;
};

// A block of this model has 4 products forward and 8 backward.
TEST(LayerDrop, ABlockThatIsLeftOutComputesNothing) {
  Config config = dropping(model::Type::Gpt);
  config.reproducible = Reproducible::Run;
  const int64_t microbatches = 12, of_a_block = 12;
  CountsProducts all, some;
  int64_t left_out = 0, before = 0;
  const auto count_step = [&](CountsProducts& counter, const Config& c, int64_t steps) {
    run({.ranks = 1, .steps = steps, .observer = [&](int) { return &counter; }, .config = c});
  };
  for (int64_t step = 0; step < 6; ++step)
    for (int64_t block = 1; block <= 4; ++block) {
      const DroppedLayer layer(
          {.name = fmt::format("blocks.{}", block - 1), .drop = config.model.layer_drop, .block = block, .blocks = 4}, nullptr);
      const uint64_t seed = static_cast<uint64_t>(config.training.seed);
      left_out += layer.keeps({.seed = seed, .step = static_cast<double>(step)}) ? 0 : 1;
    }
  EXPECT_GT(left_out, before);
  count_step(some, config, 6);
  config.model.layer_drop.theta = 1;
  count_step(all, config, 6);
  EXPECT_EQ(all.products - some.products, left_out * microbatches * of_a_block);
}

}  // namespace
}  // namespace trivet::test
