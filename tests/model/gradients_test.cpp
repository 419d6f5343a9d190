// Compares every layer's backward_input and backward_weight with central differences in float64. The differences are of fourth
// order with a step of 1e-3, so that truncation and rounding leave an error of about 1e-11.
#include <gtest/gtest.h>

#include <map>

#include "model/check_gradients.h"
#include "model/dropped_tokens.h"
#include "model/embedding.h"
#include "model/lm_head.h"
#include "model/transformer_block.h"

namespace trivet::model {
namespace {

constexpr double kGradientTolerance = 1e-9;

void expect_right(const Layer& layer, const GradientCheck& check) {
  const GradientCheckResult result = check_gradients(layer, check);
  EXPECT_LE(result.worst_error, kGradientTolerance) << result.where;
  EXPECT_GT(result.compared, 0);
}

TEST(Linear, GradientsMatchDifferences) {
  expect_right(Linear({.in = 5, .out = 7}), {.input_shape = {2, 3, 5}});
  expect_right(Linear({.in = 5, .out = 7, .bias = false}), {.input_shape = {4, 5}});
  expect_right(Linear({.in = 1, .out = 1}), {.input_shape = {1, 1, 1}});
}

TEST(LayerNorm, GradientsMatchDifferences) {
  expect_right(LayerNorm(7, 1e-5, true), {.input_shape = {2, 3, 7}});
  expect_right(LayerNorm(7, 1e-5, false), {.input_shape = {2, 3, 7}});
}

TEST(RmsNorm, GradientsMatchDifferences) { expect_right(RmsNorm(7, 1e-5), {.input_shape = {2, 3, 7}}); }

TEST(Attention, GradientsMatchDifferences) {
  expect_right(Attention("a", {.hidden = 12, .heads = 2, .key_value_heads = 2}), {.input_shape = {2, 5, 12}});
  expect_right(Attention("a", {.hidden = 9, .heads = 3, .key_value_heads = 3}), {.input_shape = {1, 1, 9}});
}

TEST(Attention, GradientsMatchDifferencesWithGroupedQueriesRotationAndDropout) {
  expect_right(Attention("a", {.hidden = 24, .heads = 4, .key_value_heads = 2, .bias = false, .rotary_base = 10000}),
               {.input_shape = {2, 7, 24}});
  expect_right(Attention("a", {.hidden = 24, .heads = 4, .key_value_heads = 1, .dropout = 0.3, .rotary_base = 100}),
               {.input_shape = {2, 7, 24}});
}

TEST(Attention, GradientsMatchDifferencesWithHeadsOfTheirOwnSizeAndBiasesOfQkv) {
  const Attention attention(
      "a",
      {.hidden = 7, .heads = 4, .key_value_heads = 2, .head_size = 6, .bias = false, .qkv_bias = true, .rotary_base = 100});
  ASSERT_EQ(attention.parameters().size(), 3u);
  EXPECT_EQ(attention.parameters()[1].shape, (Shape{(4 + 2 + 2) * 6}));
  EXPECT_EQ(attention.parameters()[2].shape, (Shape{7, 4 * 6}));
  expect_right(attention, {.input_shape = {2, 5, 7}});
}

TEST(Attention, GradientsMatchDifferencesWithAWindowAndASlowerRotationOfAPart) {
  expect_right(Attention("a", {.hidden = 16,
                               .heads = 2,
                               .key_value_heads = 1,
                               .bias = false,
                               .window = 3,
                               .rotary_base = 100,
                               .rotated = 6,
                               .rotary_scaling = {.type = model::RotaryScalingType::Linear, .factor = 2}}),
               {.input_shape = {2, 7, 16}});
}

TEST(Attention, GradientsMatchDifferencesWithASoftCapAndAMagnitudeOfRotation) {
  expect_right(Attention("a", {.hidden = 16,
                               .heads = 2,
                               .key_value_heads = 1,
                               .bias = false,
                               .dropout = 0.3,
                               .window = 3,
                               .rotary_base = 100,
                               .rotated = 6,
                               .rotary_scaling = {.type = RotaryScalingType::Yarn, .factor = 20, .attention_factor = 1.5},
                               .score_scale = 0.8,
                               .soft_cap = 0.7}),
               {.input_shape = {2, 7, 16}});
}

TEST(Attention, GradientsMatchDifferencesWithNormsOfQueriesAndKeys) {
  const Attention attention("a", {.hidden = 12,
                                  .heads = 4,
                                  .key_value_heads = 2,
                                  .head_size = 6,
                                  .bias = false,
                                  .rotary_base = 100,
                                  .qk_norm = true,
                                  .norm_epsilon = 1e-3});
  ASSERT_EQ(attention.parameters().size(), 4u);
  EXPECT_EQ(attention.parameters()[2].name, "query_norm.gain");
  EXPECT_EQ(attention.parameters()[3].name, "key_norm.gain");
  EXPECT_FALSE(attention.parameters()[3].decay);
  expect_right(attention, {.input_shape = {2, 5, 12}});
}

TEST(Attention, GradientsMatchDifferencesWithANormOfWholeProjectionsABiasAndQueriesThatGrow) {
  const Attention attention("a", {.hidden = 12,
                                  .heads = 4,
                                  .key_value_heads = 2,
                                  .head_size = 6,
                                  .bias = false,
                                  .out_bias = true,
                                  .rotary_base = 100,
                                  .rotated = 4,
                                  .query_growth = 0.7,
                                  .query_step = 2,
                                  .whole_norm = true,
                                  .norm_epsilon = 1e-3});
  ASSERT_EQ(attention.parameters().size(), 5u);
  EXPECT_EQ(attention.parameters()[2].name, "out.bias");
  EXPECT_EQ(attention.parameters()[3].name, "query_norm.gain");
  EXPECT_EQ(attention.parameters()[3].shape, Shape{4 * 6});
  EXPECT_EQ(attention.parameters()[4].shape, Shape{2 * 6});
  expect_right(attention, {.input_shape = {2, 5, 12}});
}

TEST(Attention, GradientsMatchDifferencesWithSinks) {
  const Attention attention("a", {.hidden = 12,
                                  .heads = 4,
                                  .key_value_heads = 2,
                                  .dropout = 0.3,
                                  .window = 3,
                                  .rotary_base = 100,
                                  .soft_cap = 2,
                                  .sinks = true});
  EXPECT_EQ(attention.parameters().back().name, "sinks");
  EXPECT_EQ(attention.parameters().back().shape, Shape{4});
  expect_right(attention, {.input_shape = {2, 5, 12}});
}

TEST(Attention, GradientsMatchDifferencesWithLatents) {
  Attention::Options options{
      .hidden = 7,
      .heads = 3,
      .key_value_heads = 3,
      .head_size = 6,
      .bias = false,
      .rotary_base = 100,
      .rotated = 2,
      .score_scale = 0.8,
      .latent = {.query_rank = 5, .key_value_rank = 4, .rotary_size = 2, .value_size = 5, .norm_epsilon = 1e-3}};
  const auto shapes = [](const Attention& attention) {
    std::map<std::string, Shape> all;
    for (const ParameterSpec& parameter : attention.parameters()) all[parameter.name] = parameter.shape;
    return all;
  };
  EXPECT_EQ(shapes(Attention("a", options)), (std::map<std::string, Shape>{{"query_down.weight", {5, 7}},
                                                                           {"query_norm.gain", {5}},
                                                                           {"query_up.weight", {18, 5}},
                                                                           {"key_value_down.weight", {4 + 2, 7}},
                                                                           {"key_value_norm.gain", {4}},
                                                                           {"key_value_up.weight", {3 * (4 + 5), 4}},
                                                                           {"out.weight", {7, 15}}}));
  expect_right(Attention("a", options), {.input_shape = {2, 5, 7}});
  Attention::Options without = options;
  without.latent.key_value_rank = 0;
  EXPECT_EQ(shapes(Attention("a", without)).at("out.weight"), (Shape{7, 18})) << "its other sizes have no effect";
  options.latent.query_rank = options.latent.value_size = 0;
  EXPECT_EQ(shapes(Attention("a", options)).at("query.weight"), (Shape{18, 7}));
  EXPECT_EQ(shapes(Attention("a", options)).at("out.weight"), (Shape{7, 18}));
  expect_right(Attention("a", options), {.input_shape = {2, 5, 7}});
}

TEST(Mlp, GradientsMatchDifferences) {
  expect_right(Mlp({.hidden = 6, .feed_forward = 11}), {.input_shape = {2, 3, 6}});
  expect_right(Mlp({.hidden = 6, .feed_forward = 11, .activation = Activation::SwiGlu, .bias = false}),
               {.input_shape = {2, 3, 6}});
}

// The differences are too small to change a choice of experts, which would be no gradient.
TEST(ExpertMlp, GradientsMatchDifferences) {
  const ExpertMlp::Options softmax{.hidden = 6, .experts = 4, .chosen = 2, .feed_forward = 5};
  ExpertMlp::Options plain = softmax, sigmoid = softmax, all = softmax, gated = softmax, biased = softmax, adapted = softmax;
  plain.rule.normalize = false;
  sigmoid.rule = {.score = kernels::ExpertScore::Sigmoid, .scale = 2.5, .groups = 2, .groups_per_token = 1};
  sigmoid.shared_feed_forward = 7;
  all.experts = 3;
  all.chosen = 3;
  gated.shared_feed_forward = 5;
  gated.shared_gate = gated.correction_bias = true;
  biased.bias = true;
  biased.swiglu = {.limit = 0.8, .alpha = 1.7, .offset = 1};
  adapted.bias = adapted.correction_bias = true;
  adapted.gate_up_adapters = {2, 0.5, {{}}};
  adapted.down_adapters = {3, 0.25, {{}}};
  adapted.shared_feed_forward = 5;
  adapted.shared_up_adapters = {2, 0.5, {{"gate", 0}, {"up", 1}}};
  adapted.shared_down_adapters = {2, 0.5, {{}}};
  for (const ExpertMlp::Options& options : {softmax, plain, sigmoid, all, gated, biased, adapted})
    expect_right(ExpertMlp(options), {.input_shape = {2, 4, 6}});
}

// More experts than rows: most have none, and their gradients are 0.
TEST(ExpertMlp, GradientsMatchDifferencesWithExpertsWithoutTokens) {
  expect_right(ExpertMlp({.hidden = 3, .experts = 12, .chosen = 1, .feed_forward = 4, .rule = {.normalize = false}}),
               {.input_shape = {1, 3, 3}, .samples = 0});
}

TransformerBlock::Options small_gpt_block(double dropout) {
  return {.attention = {.hidden = 12, .heads = 3, .key_value_heads = 3, .dropout = dropout},
          .mlp = {.hidden = 12, .feed_forward = 20},
          .dropout = dropout};
}

TransformerBlock::Options small_llama_block(double dropout) {
  return {
      .attention = {.hidden = 12, .heads = 3, .key_value_heads = 1, .bias = false, .dropout = dropout, .rotary_base = 10000},
      .mlp = {.hidden = 12, .feed_forward = 13, .activation = Activation::SwiGlu, .bias = false},
      .norm = NormKind::RmsNorm,
      .dropout = dropout};
}

TEST(TransformerBlock, GradientsMatchDifferencesForGpt) {
  expect_right(TransformerBlock("b", small_gpt_block(0)), {.input_shape = {2, 5, 12}});
  expect_right(TransformerBlock("b", small_gpt_block(0.2)), {.input_shape = {2, 5, 12}});
  expect_right(TransformerBlock("b", small_gpt_block(0.2)), {.input_shape = {2, 5, 12}, .training = false});
}

// check_gradients draws as step 3, in which 4 of 7 tokens are chosen; the second block has all of them.
TEST(DroppedTokens, GradientsMatchDifferences) {
  const TokenDrop drop{.enabled = true, .min_tokens = 2, .max_tokens = 7, .steps = 6, .multiple = 2};
  ASSERT_EQ(kept_tokens(drop, 3), 4);
  TransformerBlock::Options rotated = small_gpt_block(0.2);
  rotated.attention.rotary_base = 100;
  expect_right(DroppedTokens("b", drop, std::make_unique<TransformerBlock>("b", rotated)), {.input_shape = {2, 7, 12}});
  expect_right(DroppedTokens("b", drop, std::make_unique<TransformerBlock>("b", rotated)), {.input_shape = {2, 4, 12}});
  expect_right(DroppedTokens("b", drop, std::make_unique<TransformerBlock>("b", rotated)),
               {.input_shape = {2, 7, 12}, .training = false});
}

TEST(TransformerBlock, GradientsMatchDifferencesWithoutBiases) {
  TransformerBlock::Options options = small_gpt_block(0);
  options.attention.bias = options.mlp.bias = options.norm_bias = false;
  const TransformerBlock block("b", options);
  EXPECT_EQ(block.parameters().size(), 6u);
  expect_right(block, {.input_shape = {2, 5, 12}});
}

TEST(TransformerBlock, GradientsMatchDifferencesForLlama) {
  expect_right(TransformerBlock("b", small_llama_block(0)), {.input_shape = {2, 5, 12}});
  expect_right(TransformerBlock("b", small_llama_block(0.2)), {.input_shape = {1, 9, 12}});
}

TEST(TransformerBlock, GradientsMatchDifferencesWithASecondNormAndGeglu) {
  for (double dropout : {0.0, 0.2}) {
    TransformerBlock::Options options = small_llama_block(dropout);
    options.mlp.activation = Activation::GeGlu;
    options.post_norm = true;
    const TransformerBlock block("b", options);
    ASSERT_EQ(block.parameters().size(), 8u);
    EXPECT_EQ(block.parameters()[3].name, "post_norm1.gain");
    EXPECT_EQ(block.parameters()[7].name, "post_norm2.gain");
    expect_right(block, {.input_shape = {2, 5, 12}});
  }
}

// Without the first norms, which for other blocks compute the sums of residuals, too.
TEST(TransformerBlock, GradientsMatchDifferencesWithNormsAfterOnlyAndAScaleOfResiduals) {
  for (const double dropout : {0.0, 0.2})
    for (const bool pre_norm : {false, true})
      for (const double scale : {1.0, 0.3}) {
        TransformerBlock::Options options = small_llama_block(dropout);
        options.pre_norm = pre_norm;
        options.post_norm = !pre_norm;
        options.residual_scale = scale;
        const TransformerBlock block("b", options);
        ASSERT_EQ(block.parameters().size(), 6u);
        EXPECT_EQ(block.parameters()[pre_norm ? 0 : 2].name, pre_norm ? "norm1.gain" : "post_norm1.gain");
        expect_right(block, {.input_shape = {2, 5, 12}});
      }
}

TEST(Embedding, GradientsMatchDifferences) {
  expect_right(Embedding("e", {.vocabulary = 6, .hidden = 5, .positions = 9}),
               {.input_shape = {3, 4}, .vocabulary = 6, .samples = 0});
  expect_right(Embedding("e", {.vocabulary = 6, .hidden = 5, .positions = 4, .dropout = 0.4}),
               {.input_shape = {3, 4}, .vocabulary = 6, .samples = 0});
  for (double dropout : {0.0, 0.4})
    expect_right(Embedding("e", {.vocabulary = 6, .hidden = 5, .scale = 2.5, .dropout = dropout}),
                 {.input_shape = {3, 4}, .vocabulary = 6, .samples = 0});
  expect_right(Embedding("e", {.vocabulary = 50, .hidden = 5}), {.input_shape = {3, 4}, .vocabulary = 50, .samples = 0});
}

// With chunks of 4 rows, both answers of a pair are in several.
TEST(PreferenceHead, GradientsMatchDifferences) {
  using kernels::PreferenceLossType;
  for (const kernels::PreferenceRule& rule : {kernels::PreferenceRule{PreferenceLossType::Sigmoid, 0.3, 0},
                                              {PreferenceLossType::Hinge, 0.01, 0},
                                              {PreferenceLossType::Ipo, 0.3, 0},
                                              {PreferenceLossType::Robust, 0.3, 0.2}})
    for (const int64_t rows_of_chunk : {4, 64}) {
      const LmHead head({.vocabulary = 7, .hidden = 6, .rows_of_chunk = rows_of_chunk, .preference = rule},
                        make_norm(NormKind::LayerNorm, 6, 1e-5, true));
      expect_right(head, {.input_shape = {4, 5, 6}, .targets_below = 7, .pairs = true});
    }
}

TEST(LmHead, GradientsMatchDifferencesInOneChunkAndInSeveral) {
  for (int64_t rows_of_chunk : {0, 1, 4, 15}) {
    expect_right(
        LmHead({.vocabulary = 11, .hidden = 6, .rows_of_chunk = rows_of_chunk}, make_norm(NormKind::LayerNorm, 6, 1e-5, true)),
        {.input_shape = {3, 5, 6}, .targets_below = 11});
    expect_right(LmHead({.vocabulary = 11, .hidden = 6, .tied_to = "embedding.tokens.weight", .rows_of_chunk = rows_of_chunk},
                        make_norm(NormKind::RmsNorm, 6, 1e-5, false)),
                 {.input_shape = {3, 5, 6}, .targets_below = 11});
  }
}

TEST(LmHead, GradientsMatchDifferencesWithAScalingAndASoftCap) {
  for (int64_t rows_of_chunk : {0, 4})
    for (const double scaling : {1.0, 3.0})
      expect_right(LmHead({.vocabulary = 11, .hidden = 6, .rows_of_chunk = rows_of_chunk, .scaling = scaling, .soft_cap = 1.5},
                          make_norm(NormKind::RmsNorm, 6, 1e-5, false)),
                   {.input_shape = {3, 5, 6}, .targets_below = 11});
}

// A layer with a bug: its dx forgets the second use of x.
class HalfForgotten : public Linear {
 public:
  HalfForgotten() : Linear({.in = 4, .out = 4}) {}
  void forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const override {
    Linear::forward(context, weights, x, y, saved);
    context.kernels.add(x, y);
  }
};

TEST(CheckGradients, NamesTheTensorThatIsWrong) {
  const GradientCheckResult result = check_gradients(HalfForgotten(), {.input_shape = {2, 4}});
  EXPECT_GT(result.worst_error, 0.1);
  EXPECT_EQ(result.where.substr(0, 2), "x[");
}

}  // namespace
}  // namespace trivet::model
