// Low-rank adapters of a linear layer: their formula, their gradients, and how tensor ranks share them.
#include "model/adapters.h"

#include <gtest/gtest.h>

#include "model/check_gradients.h"
#include "tests/model/layer_on_ranks.h"

namespace trivet::model {
namespace {

const Adapters::Options kWhole{.rank = 2, .scale = 0.5, .parts = {{}}};

Linear fused(std::vector<Adapters::Part> parts) {
  return Linear({.in = 4, .out = 10, .split = {0, {4, 2, 4}, {2, 2, 2}}, .adapters = {2, 0.5, std::move(parts)}});
}

Mlp mlp(Activation activation, Adapters::Options up, Adapters::Options down) {
  return Mlp({.hidden = 8,
              .feed_forward = 12,
              .activation = activation,
              .up_adapters = std::move(up),
              .down_adapters = std::move(down)});
}

TransformerBlock::Options adapted(TransformerBlock::Options block) {
  const bool gated = block.mlp.activation != Activation::Gelu;
  block.attention.qkv_adapters = {3, 0.5, {{"query", 0}, {"value", 2}}};
  block.attention.out_adapters = {3, 0.5, {{}}};
  block.mlp.up_adapters = {3, 0.5, {gated ? Adapters::Part{"up", 1} : Adapters::Part{}}};
  block.mlp.down_adapters = {3, 0.5, {{}}};
  return block;
}

void expect_right_gradients(const Layer& layer, const Shape& input) {
  const GradientCheckResult result = check_gradients(layer, {.input_shape = input, .samples = 0});
  EXPECT_LE(result.worst_error, 1e-9) << result.where;  // as in gradients_test.cpp
  EXPECT_GT(result.compared, 0);
}

TEST(Adapters, HaveTheNamesShapesAndInitialValuesOfPeft) {
  const Linear linear = fused({{"query", 0}, {"value", 2}});
  const auto parameters = linear.parameters();
  ASSERT_EQ(parameters.size(), 6u);
  EXPECT_EQ(parameters[2].name, "query.lora_a");
  EXPECT_EQ(parameters[2].shape, (Shape{2, 4}));
  EXPECT_EQ(parameters[2].init.kind, Init::Kind::Uniform);
  EXPECT_EQ(parameters[2].init.scale, 0.5);  // 1 / sqrt(4), the bound of kaiming_uniform_ with a = sqrt(5)
  EXPECT_EQ(parameters[5].name, "value.lora_b");
  EXPECT_EQ(parameters[5].shape, (Shape{4, 2}));
  EXPECT_EQ(parameters[5].init.kind, Init::Kind::Zeros);
  EXPECT_EQ(Linear({.in = 3, .out = 2, .adapters = kWhole}).parameters()[3].name, "lora_b");
  EXPECT_TRUE(is_adapter("blocks.0.attention.qkv.query.lora_a"));
  EXPECT_TRUE(is_adapter("lora_b"));
  EXPECT_FALSE(is_adapter("blocks.0.attention.lora_b.weight"));
}

// y = x W^T + b and, in the rows of the part, 0.5 (x A^T) B^T.
TEST(Adapters, AddTheirProductToTheRowsOfTheirPart) {
  const Linear linear({.in = 2, .out = 3, .split = {0, {1, 2}}, .adapters = {1, 0.5, {{"second", 1}}}});
  Values w{1, 2, 3, 4, 5, 6}, bias{10, 20, 30}, a{2, -1}, b{3, 5}, x{1, 4}, y(3);
  const std::vector<ConstTensorView> weights{view_of(w, {3, 2}), view_of(bias, {3}), view_of(a, {1, 2}), view_of(b, {2, 1})};
  MemoryMeter meter;
  Arena arena("activations", host_allocator(), meter, MemoryCategory::Activations, 1 << 16);
  const auto kernels = kernels::make_cpu_kernels(1);
  Context context{*kernels, arena};
  Saved saved;
  linear.forward(context, weights, view_of(x, {1, 2}), view_of(y, {1, 3}), saved);
  const double low = 1 * 2 + 4 * -1;
  EXPECT_EQ(y, (Values{10 + 9, 20 + 19 + 0.5 * low * 3, 30 + 29 + 0.5 * low * 5}));
}

TEST(Adapters, GradientsMatchDifferences) {
  expect_right_gradients(Linear({.in = 5, .out = 7, .adapters = kWhole}), {2, 3, 5});
  expect_right_gradients(Linear({.in = 5, .out = 7, .bias = false, .adapters = kWhole}), {4, 5});
  expect_right_gradients(fused({{"key", 1}}), {2, 3, 4});
  expect_right_gradients(fused({{"query", 0}, {"key", 1}, {"value", 2}}), {2, 3, 4});
}

// GELU is computed apart from the products, which are not complete without the adapters.
TEST(Adapters, GradientsOfAnMlpMatchDifferences) {
  for (const bool up : {false, true})
    for (const bool down : {false, true}) {
      const Adapters::Options none;
      expect_right_gradients(mlp(Activation::Gelu, up ? kWhole : none, down ? kWhole : none), {1, 4, 8});
      expect_right_gradients(
          mlp(Activation::SwiGlu, up ? Adapters::Options{2, 0.5, {{"gate", 0}, {"up", 1}}} : none, down ? kWhole : none),
          {1, 4, 8});
    }
}

TEST(Adapters, OnTensorRanksAreAsOnOneRank) {
  for (const int size : {2, 4}) {
    expect_as_one_rank(TransformerBlock("b", adapted(gpt_block(0.3))), {.input_shape = {2, 8, 24}}, size);
    expect_as_one_rank(TransformerBlock("b", adapted(llama_block(0.3, 4))), {.input_shape = {2, 8, 32}}, size);
    expect_as_one_rank(mlp(Activation::Gelu, kWhole, kWhole), {.input_shape = {2, 4, 8}}, size);
  }
}

TEST(Adapters, OnRanksThatShareTheTokensAreAsOnOneRank) {
  for (const int size : {2, 4}) {
    expect_as_one_rank_in_parts(TransformerBlock("b", adapted(gpt_block(0.3))), {.input_shape = {2, 8, 24}}, size);
    expect_as_one_rank_in_parts(TransformerBlock("b", adapted(llama_block(0.3, 4))), {.input_shape = {2, 8, 32}}, size);
  }
}

}  // namespace
}  // namespace trivet::model
