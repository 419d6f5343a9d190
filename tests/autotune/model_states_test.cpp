// The memory of model states, compared with the figures of DeepSpeed's estimators.
#include "autotune/model_states.h"

#include <gtest/gtest.h>

namespace trivet::autotune {
namespace {

constexpr double kGibibyte = 1 << 30;

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
