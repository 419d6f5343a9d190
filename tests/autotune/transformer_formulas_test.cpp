// The formulas are checked against figures of Narayanan et al. 2021 and Korthikanti et al. 2022.
#include "tests/autotune/transformer_formulas.h"

#include <gtest/gtest.h>

namespace trivet::autotune {
namespace {

// The four models of both papers have a vocabulary of 51,200 and sequences of 2,048 tokens.
TransformerShape shape_of(int64_t layers, int64_t hidden, int64_t heads) { return {layers, hidden, heads, 51200, 2048}; }
const TransformerShape k22B = shape_of(48, 6144, 64), k175B = shape_of(96, 12288, 96), k530B = shape_of(105, 20480, 128),
                       k1T = shape_of(128, 25600, 160);

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

}  // namespace
}  // namespace trivet::autotune
