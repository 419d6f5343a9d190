// Slices of MLPs are a part of the mathematics, as microbatches are: in layout mode their bits are the same on every layout,
// and in run mode nothing changes them that does not change those of whole MLPs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/equivalence/tiny_run.h"

namespace trivet::test {
namespace {

struct SlicedLayout {
  int context = 1, data = 1, tensor = 1, pipeline = 1, stage = 0;
  ScheduleKind schedule = ScheduleKind::OneForwardOneBackward;
  Recompute recompute = Recompute::None;
  bool sequence_parallel = false;
};

std::string to_string(const SlicedLayout& layout) {
  return fmt::format("context {} data {} tensor {} pipeline {} stage {} {} recompute {}", layout.context, layout.data,
                     layout.tensor, layout.pipeline, layout.stage, name_of(layout.schedule), name_of(layout.recompute));
}

struct SlicedModel {
  const char* name;
  model::Type type;
  bool bf16 = false, lora = false;
};

class MlpSlices : public testing::TestWithParam<SlicedModel> {
 protected:
  // Sequences have 16 tokens: slices of 3 end in the middle of nothing else.
  Trace train(Reproducible reproducible, int64_t grain, const SlicedLayout& layout, int64_t slice_tokens = 3) const {
    Config config = tiny_config(GetParam().type);
    config.model.heads = config.model.key_value_heads = 8;
    if (GetParam().lora)
      config.model.lora = {.rank = 2, .alpha = 4, .targets = {"q_proj", "gate_proj", "up_proj", "down_proj"}};
    config.bf16.enabled = GetParam().bf16;
    config.reproducible = reproducible;
    config.mlp_slice_tokens = slice_tokens;
    config.parallel.context_grain = grain;
    config.parallel.context = layout.context;
    config.parallel.tensor = layout.tensor;
    config.parallel.pipeline = layout.pipeline;
    config.parallel.sequence_parallel = layout.sequence_parallel;
    config.pipeline.schedule = layout.schedule;
    config.zero.stage = layout.stage;
    config.zero.overlap_comm = layout.stage == 3;
    config.recompute = layout.recompute;
    return run({.ranks = layout.context * layout.data * layout.tensor * layout.pipeline, .steps = 3, .config = config});
  }
};

TEST_P(MlpSlices, LayoutModeGivesTheBitsOfOneRank) {
  const Trace one = train(Reproducible::Layout, 1, {});
  for (const SlicedLayout& layout : {SlicedLayout{.data = 3, .stage = 3, .recompute = Recompute::Full},
                                     SlicedLayout{.data = 2, .tensor = 2, .stage = 2, .recompute = Recompute::Selective},
                                     SlicedLayout{.tensor = 4, .stage = 1},
                                     SlicedLayout{.tensor = 2, .pipeline = 2, .schedule = ScheduleKind::ZeroBubbleH1}})
    EXPECT_EQ(difference(one, train(Reproducible::Layout, 1, layout)), "") << to_string(layout);
  EXPECT_NE(difference(one, train(Reproducible::Layout, 1, {}, 0)), "") << "the slices are not used";
}

TEST_P(MlpSlices, LayoutModeGivesTheBitsOfOneContextRank) {
  const Trace one = train(Reproducible::Layout, 4, {});
  for (const SlicedLayout& layout :
       {SlicedLayout{.context = 2, .data = 3, .stage = 3}, SlicedLayout{.context = 4, .stage = 1, .recompute = Recompute::Full},
        SlicedLayout{.context = 2, .tensor = 2, .stage = 2},
        SlicedLayout{.context = 4, .pipeline = 2, .schedule = ScheduleKind::ZeroBubbleH1}})
    EXPECT_EQ(difference(one, train(Reproducible::Layout, 4, layout)), "") << to_string(layout);
}

TEST_P(MlpSlices, RunModeChangesNoBitsThatWholeMlpsKeep) {
  for (const SlicedLayout& plain :
       {SlicedLayout{.data = 2, .stage = 1}, SlicedLayout{.context = 2, .tensor = 2, .sequence_parallel = true}}) {
    const Trace reference = train(Reproducible::Run, 1, plain);
    SlicedLayout moved = plain;
    moved.recompute = Recompute::Full;
    EXPECT_EQ(difference(reference, train(Reproducible::Run, 1, moved)), "") << to_string(moved);
    moved.pipeline = 2;
    moved.schedule = ScheduleKind::ZeroBubbleH1;
    EXPECT_EQ(difference(reference, train(Reproducible::Run, 1, moved)), "") << to_string(moved);
    if (!GetParam().bf16) {
      EXPECT_EQ(difference_beyond_rounding(reference, train(Reproducible::Run, 1, plain, 0)), "") << to_string(plain);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MlpSlices,
                         testing::Values(SlicedModel{"gpt_fp32", model::Type::Gpt},
                                         SlicedModel{.name = "llama_bf16", .type = model::Type::Llama, .bf16 = true},
                                         SlicedModel{.name = "llama_lora", .type = model::Type::Llama, .lora = true}),
                         [](const auto& which) { return which.param.name; });

}  // namespace
}  // namespace trivet::test
