// The memory of model states, compared with the figures of the ZeRO paper and of DeepSpeed's estimators.
#include "autotune/model_states.h"

#include <gtest/gtest.h>

namespace trivet::autotune {
namespace {

constexpr double kGb = 1e9, kGibibyte = 1 << 30;

struct PaperRow {
  double parameters;
  int64_t ranks;
  double gb[4];  // [stage], as figure 1 and table 1 of the paper give them
};

// The paper rounds to three digits or so.
TEST(ModelStates, AreThoseOfTheZeroPaper) {
  for (const PaperRow& row : {PaperRow{7.5e9, 4, {120, 52.5, 41.3, 30}}, PaperRow{7.5e9, 16, {120, 35.6, 21.6, 7.5}},
                              PaperRow{7.5e9, 64, {120, 31.4, 16.6, 1.88}}, PaperRow{7.5e9, 256, {120, 30.4, 15.4, 0.47}},
                              PaperRow{7.5e9, 1024, {120, 30.1, 15.1, 0.12}}, PaperRow{128e9, 1024, {2048, 513.5, 257.75, 2}},
                              PaperRow{1e12, 1024, {16000, 4011.7, 2013.7, 15.6}}})
    for (int stage = 0; stage <= 3; ++stage) {
      const double gb = model_state_bytes(stage, row.parameters, row.ranks) / kGb;
      EXPECT_NEAR(gb, row.gb[stage], gb >= 1 ? 0.06 : 0.005) << row.parameters << " parameters, " << row.ranks << " ranks";
    }
}

// Megatron's distributed optimizer: 20 bytes become 4 + 16 / d, 18 become 6 + 12 / d, 16 become 8 + 8 / d.
TEST(ModelStates, FollowTheBytesOfARecipe) {
  for (const int64_t d : {1, 8, 64}) {
    const double share = 1.0 / static_cast<double>(d);
    EXPECT_DOUBLE_EQ(model_state_bytes(1, 1, d, {.weights = 2, .gradients = 2, .optimizer = 16}), 4 + 16 * share);
    EXPECT_DOUBLE_EQ(model_state_bytes(1, 1, d, {.weights = 2, .gradients = 4, .optimizer = 12}), 6 + 12 * share);
    EXPECT_DOUBLE_EQ(model_state_bytes(1, 1, d, {.weights = 4, .gradients = 4, .optimizer = 8}), 8 + 8 * share);
  }
}

// A model of 2851 M parameters, with 32 M in its largest layer, on a node of 8 GPUs.
EstimatorOptions node() { return {.parameters = 2851e6, .largest_layer_parameters = 32e6, .gpus_per_node = 8}; }

TEST(Estimators, SayWhatDeepSpeedsCodeSaysForStage3) {
  EstimatorOptions options = node();
  EXPECT_NEAR(estimate_zero3(options).gpu_bytes / kGibibyte, 6.09, 0.005);
  EXPECT_NEAR(estimate_zero3(options).host_bytes / kGibibyte, 1.43, 0.005);  // 32e6 x 4 x 8 x 1.5
  options.zero_init = false;
  EXPECT_NEAR(estimate_zero3(options).host_bytes / kGibibyte, 127.45, 0.005);  // 2851e6 x 4 x 8 x 1.5
  options = node();
  options.offload_optimizer = true;
  EXPECT_NEAR(estimate_zero3(options).gpu_bytes / kGibibyte, 0.78, 0.005);
  EXPECT_NEAR(estimate_zero3(options).host_bytes / kGibibyte, 63.72, 0.01);
  options.offload_parameters = true;
  EXPECT_NEAR(estimate_zero3(options).gpu_bytes / kGibibyte, 0.12, 0.005);
  EXPECT_NEAR(estimate_zero3(options).host_bytes / kGibibyte, 71.69, 0.01);
  options.nodes = 2;  // each node has half of it
  EXPECT_NEAR(estimate_zero3(options).host_bytes / kGibibyte, 71.69 / 2, 0.01);
  options.zero_init = false;  // each process of the node first creates the full model
  EXPECT_NEAR(estimate_zero3(options).host_bytes / kGibibyte, 127.45, 0.005);
}

// DeepSpeed's code counts 2 + 18 / n bytes per parameter, although the table in its documentation is for 4 + 16 / n.
TEST(Estimators, SayWhatDeepSpeedsCodeSaysForStage2) {
  EstimatorOptions options = node();
  EXPECT_NEAR(estimate_zero2(options).gpu_bytes / kGibibyte, 11.28, 0.005);
  options.offload_optimizer = true;
  EXPECT_NEAR(estimate_zero2(options).gpu_bytes / kGibibyte, 5.31, 0.005);
  EXPECT_NEAR(estimate_zero2(options).host_bytes / kGibibyte, 127.45, 0.005);  // 32 bytes x 1.5
  options.gpus_per_node = 1;                                                   // at least 16 bytes x 1.5
  EXPECT_NEAR(estimate_zero2(options).host_bytes / kGibibyte, 63.72, 0.01);
}

}  // namespace
}  // namespace trivet::autotune
