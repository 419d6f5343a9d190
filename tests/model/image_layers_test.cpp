// The layers of image models: gradients against differences in float64, and what batch norm keeps.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/kernels.h"
#include "model/channel_norm.h"
#include "model/check_gradients.h"
#include "model/classifier.h"
#include "model/convolution.h"
#include "model/ctc_head.h"
#include "model/dense.h"
#include "model/pointwise.h"
#include "model/pooling.h"
#include "model/tokens.h"
#include "model/transformer_block.h"

namespace trivet::model {
namespace {

constexpr double kImageTolerance = 1e-9;

void expect_gradients(const Layer& layer, const GradientCheck& check) {
  const GradientCheckResult result = check_gradients(layer, check);
  EXPECT_LE(result.worst_error, kImageTolerance) << layer.type() << " " << result.where;
  EXPECT_GT(result.compared, 0);
}

TEST(Convolution, GradientsMatchDifferences) {
  expect_gradients(Convolution({.in_channels = 2, .out_channels = 3, .kernel = 3}), {.input_shape = {2, 2, 5, 4}});
  expect_gradients(Convolution({.in_channels = 3, .out_channels = 2, .kernel = 2, .stride = 2, .padding = 1, .bias = false}),
                   {.input_shape = {3, 3, 5, 6}});
  expect_gradients(Convolution({.in_channels = 1, .out_channels = 1, .kernel = 1}), {.input_shape = {1, 1, 1, 1}});
}

// The inputs that are perturbed are far from another largest pixel, or from zero, with these seeds.
TEST(Pool, GradientsMatchDifferences) {
  for (const kernels::Pooling kind : {kernels::Pooling::Max, kernels::Pooling::Average}) {
    expect_gradients(Pool({.kind = kind}), {.input_shape = {2, 3, 6, 5}});
    expect_gradients(Pool({.kind = kind, .size = 3, .stride = 2, .padding = 1}), {.input_shape = {2, 2, 6, 7}});
  }
  expect_gradients(Pool({.kind = kernels::Pooling::Average, .global = true}), {.input_shape = {2, 3, 4, 5}});
}

TEST(PointwiseLayer, GradientsMatchDifferences) {
  expect_gradients(PointwiseLayer(Pointwise::Relu), {.input_shape = {2, 3, 4, 2}});
  expect_gradients(PointwiseLayer(Pointwise::Gelu), {.input_shape = {2, 7}});
}

TEST(Dropout, GradientsMatchDifferences) {
  expect_gradients(Dropout("d", 0.4), {.input_shape = {3, 2, 4, 4}});
  expect_gradients(Dropout("d", 0.4), {.input_shape = {3, 10}, .training = false});
}

TEST(Flatten, GradientsMatchDifferences) { expect_gradients(Flatten(), {.input_shape = {2, 3, 4, 5}}); }

TEST(Dense, GradientsMatchDifferences) {
  expect_gradients(Dense(6, 4, true), {.input_shape = {3, 6}});
  expect_gradients(Dense(6, 4, false), {.input_shape = {3, 6}});
}

TEST(ChannelNorm, GradientsMatchDifferences) {
  expect_gradients(ChannelNorm({.channels = 4}), {.input_shape = {3, 4, 3, 2}});
  expect_gradients(ChannelNorm({.channels = 5}), {.input_shape = {7, 5}});
  expect_gradients(ChannelNorm({.channels = 4, .groups = 2}), {.input_shape = {3, 4, 3, 2}});
  expect_gradients(ChannelNorm({.channels = 3, .groups = 1}), {.input_shape = {1, 3, 4, 4}});
}

TEST(Patches, GradientsMatchDifferences) {
  expect_gradients(Patches({.channels = 2, .width = 3, .size = 2}), {.input_shape = {2, 2, 4, 6}});
  expect_gradients(Patches({.channels = 1, .width = 4, .size = 3, .bias = false}), {.input_shape = {3, 1, 7, 5}});
}

TEST(Columns, GradientsMatchDifferences) { expect_gradients(Columns(), {.input_shape = {2, 3, 4, 5}}); }

TEST(Positions, GradientsMatchDifferences) { expect_gradients(Positions(4, 3), {.input_shape = {5, 4, 3}}); }

TEST(TokenMean, GradientsMatchDifferences) {
  expect_gradients(TokenMean(), {.input_shape = {3, 4, 5}});
  expect_gradients(TokenMean(), {.input_shape = {2, 1, 3}});
}

TEST(TransformerBlock, GradientsOfABlockThatSeesAllTokensMatchDifferences) {
  for (const double dropout : {0.0, 0.3})
    expect_gradients(
        TransformerBlock("b",
                         {.attention = {.hidden = 6, .heads = 2, .key_value_heads = 2, .dropout = dropout, .causal = false},
                          .mlp = {.hidden = 6, .feed_forward = 8},
                          .dropout = dropout}),
        {.input_shape = {2, 5, 6}});
}

TEST(CtcHead, GradientsMatchDifferences) {
  expect_gradients(CtcHead(), {.input_shape = {4, 7, 5}, .targets_below = 5, .targets_shape = {4, 3}});
}

// What a layer makes of an input without weights, or with these.
std::vector<double> output_of(const Layer& layer, const Shape& shape, std::vector<double> x, std::vector<double> weights = {}) {
  const auto kernels = kernels::make_cpu_kernels(1);
  MemoryMeter meter;
  Arena arena("tokens", host_allocator(), meter, MemoryCategory::Activations, 1 << 16);
  Context context{.kernels = *kernels, .arena = arena};
  Saved saved;
  const Shape y_shape = layer.output_shape(shape);
  std::vector<double> y(y_shape.elements());
  std::vector<ConstTensorView> views;
  for (const ParameterSpec& parameter : layer.parameters()) views.push_back({weights.data(), DType::Float64, parameter.shape});
  layer.forward(context, views, ConstTensorView{x.data(), DType::Float64, shape}, {y.data(), DType::Float64, y_shape}, saved);
  return y;
}

// An image of 2 channels, 2 rows and 4 columns, whose pixels are counted, and squares of 2 x 2 pixels.
TEST(Patches, ATokenIsADenseLayerOfASquareOfPixels) {
  std::vector<double> pixels, weight;
  for (int i = 0; i < 16; ++i) pixels.push_back(i);
  for (int i = 0; i < 16; ++i) weight.push_back(i < 8 ? 1 : i == 8 ? 100 : 0);  // the sum of all pixels; 100 x the first pixel
  const Patches layer({.channels = 2, .width = 2, .size = 2, .bias = false});
  EXPECT_EQ(layer.output_shape({1, 2, 2, 4}), (Shape{1, 2, 2}));
  EXPECT_EQ(output_of(layer, {1, 2, 2, 4}, pixels, weight),
            (std::vector<double>{0 + 1 + 4 + 5 + 8 + 9 + 12 + 13, 0, 2 + 3 + 6 + 7 + 10 + 11 + 14 + 15, 200}));
}

TEST(Columns, ATokenIsAColumnOfPixels) {
  EXPECT_EQ(output_of(Columns(), {1, 2, 2, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}),
            (std::vector<double>{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11}));
}

TEST(Positions, AddsTheVectorOfEachPlace) {
  EXPECT_EQ(output_of(Positions(2, 2), {2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7}, {10, 20, 30, 40}),
            (std::vector<double>{10, 21, 32, 43, 14, 25, 36, 47}));
}

TEST(TokenMean, AveragesTheTokensOfEachSample) {
  EXPECT_EQ(output_of(TokenMean(), {2, 2, 3}, {0, 1, 2, 4, 5, 6, 1, 1, 1, 2, 3, 4}),
            (std::vector<double>{2, 3, 4, 1.5, 2, 2.5}));
}

TEST(Classifier, GradientsMatchDifferences) { expect_gradients(Classifier(), {.input_shape = {6, 5}, .targets_below = 5}); }

// Batch norm over 2 images of 1 channel and 2 pixels, with the values 1 2 3 6: mean 3, variance 3.5, of a sample 14 / 3.
class BatchNormOfFourPixels : public testing::Test {
 protected:
  BatchNormOfFourPixels() : layer_({.channels = 1, .epsilon = 0.5, .momentum = 0.1}) {}

  Context context(bool training) {
    return {.kernels = *kernels_, .arena = arena_, .training = training, .gradient_scale = 0.25};
  }
  static ConstTensorView view(const double& value) { return {&value, DType::Float64, {1}}; }
  static TensorView view(double& value) { return {&value, DType::Float64, {1}}; }
  std::vector<ConstTensorView> weights() const {
    return {view(gain_), view(bias_), view(running_mean_), view(running_variance_)};
  }

  std::unique_ptr<kernels::Kernels> kernels_ = kernels::make_cpu_kernels(1);
  MemoryMeter meter_;
  Arena arena_{"norm", host_allocator(), meter_, MemoryCategory::Activations, 1 << 16};
  ChannelNorm layer_;
  double pixels_[4] = {1, 2, 3, 6}, out_[4] = {};
  double gain_ = 2, bias_ = 1, running_mean_ = 5, running_variance_ = 3.5;
  const ConstTensorView x_{pixels_, DType::Float64, {2, 1, 1, 2}};
  const TensorView y_{out_, DType::Float64, {2, 1, 1, 2}};
};

TEST_F(BatchNormOfFourPixels, UsesTheMicrobatchInTrainingAndRunningStatisticsInEvaluation) {
  Saved saved;
  Context training = context(true), evaluation = context(false);
  layer_.forward(training, weights(), x_, y_, saved);
  for (int i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(out_[i], (pixels_[i] - 3) / 2 * 2 + 1);
  layer_.forward(evaluation, weights(), x_, y_, saved);
  for (int i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(out_[i], (pixels_[i] - 5) / 2 * 2 + 1);
}

TEST_F(BatchNormOfFourPixels, ContributesItsStatisticsWhereGradientsGo) {
  Saved saved;
  Context training = context(true);
  double dgain = 0, dbias = 0, mean = 10, variance = 20;
  layer_.forward(training, weights(), x_, y_, saved);
  layer_.backward_input(training, weights(), x_, y_, saved);
  const std::vector<Gradient> gradients{{view(dgain)}, {view(dbias)}, {view(mean)}, {view(variance), false}};
  layer_.backward_weight(training, gradients, saved);
  EXPECT_DOUBLE_EQ(mean, 10 + 0.25 * 3);
  EXPECT_DOUBLE_EQ(variance, 0.25 * 14 / 3);
}

TEST(ChannelNorm, NeedsTwoValuesToNormalize) {
  const ChannelNorm batch({.channels = 3}), group({.channels = 3, .groups = 3});
  EXPECT_EQ(batch.training_problem({1, 3}),
            "needs at least 2 values to normalize, but has 1 of [1, 3]; use larger microbatches");
  EXPECT_EQ(batch.training_problem({2, 3}), "");
  EXPECT_EQ(batch.training_problem({1, 3, 1, 2}), "");
  EXPECT_EQ(group.training_problem({8, 3, 1, 1}),
            "needs at least 2 values to normalize, but has 1 of [8, 3, 1, 1]; use larger images or fewer groups");
}

TEST(ChannelNorm, KeepsRunningStatisticsForBatchNormOnly) {
  const ChannelNorm batch({.channels = 3, .momentum = 0.2}), group({.channels = 4, .groups = 2});
  ASSERT_EQ(batch.parameters().size(), 4u);
  EXPECT_EQ(group.parameters().size(), 2u);
  for (const ParameterSpec& parameter : batch.parameters()) {
    const bool running = parameter.name.starts_with("running_");
    EXPECT_EQ(parameter.update.kind, running ? ParameterUpdate::Kind::RunningAverage : ParameterUpdate::Kind::Optimizer);
    EXPECT_EQ(parameter.update.momentum, running ? 0.2 : 0);
    EXPECT_EQ(parameter.init.kind,
              parameter.name == "running_mean" || parameter.name == "bias" ? Init::Kind::Zeros : Init::Kind::Ones);
    EXPECT_FALSE(parameter.decay);
  }
}

}  // namespace
}  // namespace trivet::model
