// The formulas are checked against figures of Narayanan et al. 2021 and Korthikanti et al. 2022.
#include "autotune/transformer_formulas.h"

#include <gtest/gtest.h>

#include "engine/plan.h"

namespace trivet::autotune {
namespace {

// The four models of both papers have a vocabulary of 51,200 and sequences of 2,048 tokens.
TransformerShape shape_of(int64_t layers, int64_t hidden, int64_t heads) { return {layers, hidden, heads, 51200, 2048}; }
const TransformerShape k22B = shape_of(48, 6144, 64), k175B = shape_of(96, 12288, 96), k530B = shape_of(105, 20480, 128),
                       k1T = shape_of(128, 25600, 160);

TEST(Formulas, CountTheParametersOfPublishedModels) {
  EXPECT_NEAR(gpt_parameters(k22B), 22.074e9, 0.0005e9);
  EXPECT_NEAR(gpt_parameters(k175B), 174.616e9, 0.0005e9);
  EXPECT_NEAR(gpt_parameters(k530B), 529.601e9, 0.0005e9);
  EXPECT_NEAR(gpt_parameters(k1T), 1008.039e9, 0.0005e9);
}

// What the formula leaves out is the last norm: 2 h.
TEST(Formulas, CountTheParametersThatAModelHas) {
  const TransformerShape shape{.layers = 3, .hidden = 64, .heads = 4, .vocabulary = 100, .sequence = 32};
  const model::Model model = model::build(
      {.layers = 3, .hidden_size = 64, .heads = 4, .sequence_length = 32, .vocabulary_size = 100, .tied_embedding = true});
  EXPECT_DOUBLE_EQ(gpt_parameters(shape) + 2 * 64, static_cast<double>(model::parameter_count(model)));
}

TEST(Formulas, GiveTheIterationTimeOf175BillionParameters) {
  const double recomputed = gpt_step_flops(k175B, 1536, RecomputedPart::Everything);
  EXPECT_NEAR(recomputed, 4.511e18, 0.0005e18);
  EXPECT_NEAR(gpt_step_flops(k175B, 1536), 3.386e18, 0.0005e18);
  EXPECT_NEAR(recomputed / (1024 * 138e12), 31.92, 0.005);  // seconds, on 1,024 GPUs at 138 TFLOP/s each
}

// The expected ratios are hardware over model FLOPs utilization in table 5 of Korthikanti et al. 2022. Both have one decimal,
// so their quotient may be off by 0.05/41.5 + 0.05/43.7, less than 0.3 %.
TEST(Formulas, CountRecomputedAttentionAsPublishedUtilizationsDo) {
  const auto ratio = [](const TransformerShape& shape) {
    return gpt_step_flops(shape, 1, RecomputedPart::Attention) / gpt_step_flops(shape, 1);
  };
  EXPECT_NEAR(ratio(k22B), 43.7 / 41.5, 3e-3);
  EXPECT_NEAR(ratio(k175B), 52.8 / 51.4, 3e-3);
  EXPECT_NEAR(ratio(k530B), 57.0 / 56.0, 3e-3);
  EXPECT_NEAR(ratio(k1T), 57.0 / 56.3, 3e-3);
}

// The FLOPs of a token are 6 N and the scores. The paper's formula for a step differs only by the parameters that are not in
// products (norms, biases, positions), which is less than 0.1 % at this size.
TEST(Formulas, FlopsOfATokenAndOfAStepAgree) {
  const double tokens = 1536.0 * 2048;
  EXPECT_NEAR(flops_per_token(gpt_parameters(k175B), k175B, false) * tokens / gpt_step_flops(k175B, 1536), 1, 1e-3);
  EXPECT_DOUBLE_EQ(flops_per_token(10, k175B, false) - 60, 2 * (flops_per_token(10, k175B, true) - 60));
}

struct ActivationRow {
  TransformerShape shape;
  int64_t microbatch;
  double mib[5];  // not split; tensor 8; plus sequence parallelism; minus scores; all recomputed, not split
};

TEST(Formulas, CountTheActivationsOfPublishedModels) {
  for (const ActivationRow& row :
       {ActivationRow{k22B, 4, {6752, 1264, 844, 204, 96}}, ActivationRow{k175B, 1, {2736, 552, 342, 102, 48}},
        ActivationRow{k530B, 1, {3920, 840, 490, 170, 80}}, ActivationRow{k1T, 1, {4900, 1050, 612.5, 212.5, 100}}}) {
    const auto mib = [&](int64_t tensor, bool sequence, SavedActivations saved) {
      return activation_bytes_per_layer(row.shape, row.microbatch, tensor, sequence, saved) / (1 << 20);
    };
    EXPECT_NEAR(mib(1, false, SavedActivations::All), row.mib[0], 0.5);
    EXPECT_NEAR(mib(8, false, SavedActivations::All), row.mib[1], 0.5);
    EXPECT_NEAR(mib(8, true, SavedActivations::All), row.mib[2], 0.5);
    EXPECT_NEAR(mib(8, true, SavedActivations::AllButScores), row.mib[3], 0.5);
    EXPECT_NEAR(mib(1, false, SavedActivations::LayerInputs), row.mib[4], 0.5);
    EXPECT_NEAR(mib(8, true, SavedActivations::LayerInputs), row.mib[4] / 8, 0.5);
    EXPECT_NEAR(mib(8, false, SavedActivations::AllButScores) * 8, mib(1, false, SavedActivations::AllButScores) * 8 / 34 * 13,
                0.5);  // 10 + 24 / 8
  }
}

TEST(Formulas, CountTheLayersInFlightOnTheFirstStage) {
  EXPECT_DOUBLE_EQ(layers_in_flight(96, 8, 64, 1), 96);
  EXPECT_DOUBLE_EQ(layers_in_flight(96, 8, 3, 1), 36);
  EXPECT_DOUBLE_EQ(layers_in_flight(96, 8, 64, 3), 96 * (1 + 7.0 / 24));
}

}  // namespace
}  // namespace trivet::autotune
