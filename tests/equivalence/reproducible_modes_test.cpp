// With reproducible "layout" every layout gives the same bits. With reproducible "run" any change that only moves work in time
// or place gives the same bits.
#include <gtest/gtest.h>

#include "tests/equivalence/tiny_run.h"

namespace trivet::test {
namespace {

struct SmallLayout {
  int ranks, stage;
  bool recompute, overlap;
  int threads;
};

TinyRun with(Config config, const SmallLayout& layout) {
  config.zero.stage = layout.stage;
  config.zero.overlap_comm = layout.overlap;
  config.zero.stage3_max_reuse_distance = layout.recompute ? 1'000'000'000 : 0;
  config.recompute = layout.recompute ? Recompute::Full : Recompute::None;
  return {.ranks = layout.ranks, .threads = layout.threads, .config = config};
}

struct LayoutCase {
  const char* name;
  model::Type model;
  bool bf16;
  model::Objective objective = model::Objective::NextToken;
};

class Equivalence : public testing::TestWithParam<LayoutCase> {
 protected:
  Config config(Reproducible reproducible) const {
    Config config = tiny_config(GetParam().model);
    config.bf16.enabled = GetParam().bf16;
    config.model.objective = GetParam().objective;
    config.reproducible = reproducible;
    return config;
  }
};

TEST_P(Equivalence, LayoutModeGivesTheSameBitsOnEveryLayout) {
  const Trace one = run(with(config(Reproducible::Layout), {1, 0, false, false, 1}));
  EXPECT_LT(one.grad_norms.back(), 1e3);
  for (const SmallLayout& layout :
       {SmallLayout{1, 0, true, false, 2}, SmallLayout{2, 0, false, true, 1}, SmallLayout{2, 1, true, false, 1},
        SmallLayout{3, 2, false, true, 1}, SmallLayout{2, 3, true, true, 1}, SmallLayout{4, 3, false, false, 1},
        SmallLayout{4, 1, false, true, 2}, SmallLayout{3, 3, false, true, 1}, SmallLayout{4, 2, true, false, 1}})
    EXPECT_EQ(difference(one, run(with(config(Reproducible::Layout), layout))), "")
        << layout.ranks << " ranks, stage " << layout.stage << ", recompute " << layout.recompute << ", overlap "
        << layout.overlap << ", threads " << layout.threads;
}

TEST_P(Equivalence, RunModeGivesTheSameBitsWhereverWorkOnlyMoves) {
  for (int stage : {0, 1, 2, 3}) {
    const Trace plain = run(with(config(Reproducible::Run), {2, stage, false, false, 1}));
    for (const SmallLayout& layout :
         {SmallLayout{2, stage, true, false, 1}, SmallLayout{2, stage, false, true, 1}, SmallLayout{2, stage, true, true, 2}})
      EXPECT_EQ(difference(plain, run(with(config(Reproducible::Run), layout))), "")
          << "stage " << stage << ", recompute " << layout.recompute << ", overlap " << layout.overlap << ", threads "
          << layout.threads;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Equivalence,
                         testing::Values(LayoutCase{"gpt_fp32", model::Type::Gpt, false},
                                         LayoutCase{"gpt_bf16", model::Type::Gpt, true},
                                         LayoutCase{"llama_fp32", model::Type::Llama, false},
                                         LayoutCase{"llama_bf16", model::Type::Llama, true},
                                         LayoutCase{"pairs_fp32", model::Type::Gpt, false, model::Objective::Dpo},
                                         LayoutCase{"pairs_bf16", model::Type::Llama, true, model::Objective::Dpo},
                                         LayoutCase{"images_fp32", model::Type::Sequential, false},
                                         LayoutCase{"images_bf16", model::Type::Sequential, true}),
                         [](const auto& which) { return which.param.name; });

}  // namespace
}  // namespace trivet::test
