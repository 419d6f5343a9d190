// What the kernel table and the tuners prefer when several choices are possible, and how differing blocks and ranks are
// counted.
#include <gtest/gtest.h>

#include <set>

#include "autotune/block_work.h"
#include "autotune/kernel_table.h"
#include "autotune/rehearsed_step.h"
#include "autotune/tune/tuner.h"
#include "model/transformer_block.h"
#include "tests/engine/small_plan.h"

namespace trivet::autotune {
namespace {

TEST(KernelTablePreferences, AnotherVariantComesBeforeAnotherType) {
  const kernels::KernelCall call{.kernel = "matmul",
                                 .variant = "nt",
                                 .sizes = {64, 64, 64},
                                 .bound = kernels::Bound::Products,
                                 .flops = 1e6,
                                 .bytes = 1e4};
  kernels::KernelCall other_variant = call, other_type = call;
  other_type.dtype = DType::BFloat16;
  for (const char* variant : {"nn", "tt"}) {  // sorted before and after "nt" in the table
    other_variant.variant = variant;
    const KernelTable table({sample_of(other_variant, 1e-3), sample_of(other_type, 5e-3)});
    EXPECT_NEAR(table.seconds(call), 1e-3, 1e-12) << variant;
  }
}

// The sizes differ, so the time is computed and not looked up.
TEST(KernelTablePreferences, ProductsAndAttentionAreTimedByOperationsAndTheRestByBytes) {
  using kernels::Bound;
  for (const Bound bound : {Bound::Products, Bound::Attention, Bound::Memory}) {
    const kernels::KernelCall call{.kernel = "any", .sizes = {64}, .bound = bound, .flops = 1e8, .bytes = 1e6};
    kernels::KernelCall more_flops = call, more_bytes = call;
    more_flops.sizes = more_bytes.sizes = {128};
    more_flops.flops *= 2;
    more_bytes.bytes *= 2;
    const KernelTable table({sample_of(call, 1e-3)});
    const bool by_bytes = bound == Bound::Memory;
    EXPECT_NEAR(table.seconds(more_flops), by_bytes ? 1e-3 : 2e-3, 1e-12) << name_of(bound);
    EXPECT_NEAR(table.seconds(more_bytes), by_bytes ? 2e-3 : 1e-3, 1e-12) << name_of(bound);
  }
}

TEST(TunerPreferences, ARandomOrderMayHaveAnyPointAnywhere) {
  constexpr size_t kPoints = 4;
  std::set<std::pair<size_t, size_t>> seen;  // (place, point)
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto tuner = make_tuner(TunerType::Random, std::vector<Point>(kPoints), seed);
    std::vector<Observation> history;
    while (const auto next = tuner->next(history)) {
      seen.insert({history.size(), *next});
      history.push_back({*next, 1.0});
    }
  }
  EXPECT_EQ(seen.size(), kPoints * kPoints);
}

// A user's own list of layers may have blocks of several sizes.
TEST(UnlikeBlocks, AreCountedEachByItself) {
  const Config config = small_config();
  model::Model model = model_of(config);
  const auto parameters = [&](size_t block) { return work_of_blocks(model, {.microbatch = 1})[block]->parameters; };
  const int64_t usual = parameters(2);
  EXPECT_EQ(parameters(1), usual);
  model.layers[2] = std::make_unique<model::TransformerBlock>(
      "wide", model::TransformerBlock::Options{.attention = {.hidden = 64, .heads = 4, .key_value_heads = 4},
                                               .mlp = {.hidden = 64, .feed_forward = 512}});
  EXPECT_GT(parameters(2), usual);
  EXPECT_EQ(parameters(3), usual);
}

// Keeps every second token.
class Halves final : public Layer {
 public:
  std::span<const ParameterSpec> parameters() const override { return {}; }
  Shape output_shape(const Shape& input) const override { return {input[0], input[1] / 2, input[2]}; }
  void forward(Context&, Weights, ConstTensorView, TensorView, Saved&) const override {}
  void backward_input(Context&, Weights, ConstTensorView, TensorView, Saved&) const override {}
  void backward_weight(Context&, Gradients, const Saved&) const override {}
};

TEST(UnlikeBlocks, OfOneClassMayHaveInputsOfOtherSizes) {
  model::Model model = model_of(small_config());
  model.layers.resize(1);  // the embedding
  for (int i = 0; i < 3; ++i) model.layers.push_back(std::make_unique<Halves>());
  const Works works = work_of_blocks(model, {.microbatch = 1});
  for (size_t i = 1; i < works.size(); ++i) EXPECT_EQ(2 * works[i]->output_elements, works[i - 1]->output_elements) << i;
}

// Tensor rank 0 has 48 rows of a vocabulary of 97, and rank 1 has 49.
TEST(UnlikeRanks, TheSlowestTensorRankIsTheStep) {
  class Costs final : public CostModel {
    double kernel_seconds(const kernels::KernelCall& call) const override { return call.flops * 1e-9; }
    double operation_seconds(const OperationCall&) const override { return 0; }
  };
  Config config = small_config();
  config.parallel.tensor = 2;
  const RehearsedStep step = rehearse_step(plan_of(config, 2), model_of(config), Costs());
  ASSERT_EQ(step.timelines.size(), 2u);
  EXPECT_LT(step.timelines[0].makespan, step.timelines[1].makespan);
  EXPECT_DOUBLE_EQ(step.seconds, step.timelines[1].makespan / 1e3);
}

}  // namespace
}  // namespace trivet::autotune
