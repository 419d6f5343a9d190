// Which linear layers model.lora adapts.
#include "model/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/model.h"

namespace trivet::model {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAre;

Description description(Type type, std::vector<std::string> targets, int64_t rank = 2) {
  return {.type = type,
          .layers = 2,
          .hidden_size = 8,
          .heads = 2,
          .sequence_length = 4,
          .vocabulary_size = 5,
          .lora = {.rank = rank, .targets = std::move(targets)}};
}

std::vector<std::string> trained(const Description& d) {
  const Model model = build(d);
  std::vector<std::string> names;
  for (size_t layer = 0; layer < model.layers.size(); ++layer)
    for (size_t i = 0; i < model.layers[layer]->parameters().size(); ++i)
      if (model.layers[layer]->parameters()[i].trainable) names.push_back(parameter_name(model, layer, i));
  return names;
}

std::string problem(const Description& d) {
  const auto found = find_problem(d);
  return found ? found->key + ": " + found->text : "";
}

TEST(LoraTargets, AreEndsOfNamesOrWholeNamesHereOrInTransformers) {
  const auto queries_and_outs = UnorderedElementsAre(
      "blocks.0.attention.qkv.query.lora_a", "blocks.0.attention.qkv.query.lora_b", "blocks.1.attention.qkv.query.lora_a",
      "blocks.1.attention.qkv.query.lora_b", "blocks.0.attention.out.lora_a", "blocks.0.attention.out.lora_b",
      "blocks.1.attention.out.lora_a", "blocks.1.attention.out.lora_b");
  EXPECT_THAT(trained(description(Type::Llama, {"q_proj", "o_proj"})), queries_and_outs);
  EXPECT_THAT(trained(description(Type::Llama, {"(q|o)_proj"})), queries_and_outs);
  EXPECT_THAT(trained(description(Type::Llama, {R"(.*\.self_attn\.[qo]_proj)"})), queries_and_outs);
  EXPECT_THAT(trained(description(Type::Llama, {"qkv.query", "attention.out"})), queries_and_outs);
  const auto one = UnorderedElementsAre("blocks.1.mlp.down.lora_a", "blocks.1.mlp.down.lora_b");
  EXPECT_THAT(trained(description(Type::Llama, {"model.layers.1.mlp.down_proj"})), one);
  EXPECT_THAT(trained(description(Type::Gpt, {"blocks.1.mlp.down"})), one);
  EXPECT_THAT(trained(description(Type::Gpt, {"h.1.mlp.c_proj"})), one);
}

TEST(LoraTargets, AllLinearMeansEveryLinearLayerOfTheBlocks) {
  EXPECT_EQ(trained(description(Type::Gpt, {"all-linear"})).size(), 2u * 2 * 4);
  EXPECT_EQ(trained(description(Type::Llama, {"all-linear"})).size(), 2u * 2 * 7);
  EXPECT_EQ(trained(description(Type::Llama, {".*", "q_proj"})).size(), 2u * 2 * 7);
  EXPECT_EQ(lora_in_words(description(Type::Llama, {"all-linear"})), "rank 2 on 14 linear layers");
  EXPECT_EQ(lora_in_words(description(Type::Llama, {"layers.0.mlp.up_proj"})), "rank 2 on 1 linear layer");
}

// Latent attention has other projections, under the names that they have in transformers.
TEST(LoraTargets, NameTheProjectionsOfLatentAttention) {
  Description d = description(Type::Llama, {"all-linear"});
  d.head_size = 6;
  d.latent_attention = {.query_rank = 3, .key_value_rank = 4, .rotary_size = 2};
  EXPECT_EQ(lora_in_words(d), "rank 2 on 16 linear layers");
  d.lora.targets = {"layers.0.self_attn.q_b_proj", "blocks.1.attention.key_value_down"};
  EXPECT_THAT(trained(d),
              UnorderedElementsAre("blocks.0.attention.query_up.lora_a", "blocks.0.attention.query_up.lora_b",
                                   "blocks.1.attention.key_value_down.lora_a", "blocks.1.attention.key_value_down.lora_b"));
  d.lora.targets = {"q_proj"};
  EXPECT_THAT(problem(d), HasSubstr("\"q_proj\" is the name of no linear layer"));
  d.latent_attention.query_rank = 0;
  EXPECT_THAT(trained(d), UnorderedElementsAre("blocks.0.attention.query.lora_a", "blocks.0.attention.query.lora_b",
                                               "blocks.1.attention.query.lora_a", "blocks.1.attention.query.lora_b"));
}

TEST(LoraTargets, WithoutAdaptersEverythingIsTrained) {
  const Description d = description(Type::Gpt, {}, 0);
  const Model model = build(d);
  size_t parameters = 0;
  for (const auto& layer : model.layers) parameters += layer->parameters().size();
  EXPECT_EQ(trained(d).size(), parameters);
}

TEST(LoraTargets, ThatCannotBeMeantAreRefused) {
  EXPECT_EQ(
      problem(description(Type::Gpt, {"q_proj"})),
      "lora.targets: \"q_proj\" is the name of no linear layer of a block; use a regular expression for the end of such a "
      "name, or for a whole name such as blocks.0.attention.qkv (transformer.h.0.attn.c_attn): attention.qkv "
      "(attn.c_attn), attention.out (attn.c_proj), mlp.up (mlp.c_fc), mlp.down (mlp.c_proj); or \"all-linear\"");
  EXPECT_THAT(problem(description(Type::Llama, {"q_proj", "_proj"})), HasSubstr("\"_proj\" is the name of no linear layer"));
  EXPECT_THAT(problem(description(Type::Llama, {"layers.2.mlp.up_proj"})), HasSubstr("is the name of no linear layer"));
  EXPECT_THAT(problem(description(Type::Llama, {"q_proj)|(v_proj"})),
              HasSubstr("lora.targets: the regular expression \"q_proj)|(v_proj\" is not accepted: unmatched closing"));
  EXPECT_THAT(problem(description(Type::Llama, {"([a-z_.0-9]+)*[.]foo"})), HasSubstr("takes too many steps"));
  EXPECT_EQ(problem(description(Type::Llama, {})),
            "lora.targets: 0 targets are not accepted; list 1 to 100 names of linear layers, such as [\"q_proj\", \"v_proj\"]");
  EXPECT_EQ(problem(description(Type::Llama, {""})),
            "lora.targets: the regular expression \"\" is not accepted: it has 0 bytes; 1 to 1000 are accepted; use one such "
            "as \"q_proj|v_proj\"");
  EXPECT_EQ(problem(description(Type::Llama, {"q_proj"}, 0)),
            "lora.rank: 0 is not accepted with model.lora.targets; use at least 1");
  for (const char* target : {"q_proj", "(?i)Q_PROJ", "(?i:Q)_proj", "(?x) q _ proj"})
    EXPECT_EQ(problem(description(Type::Llama, {target})), "");
  EXPECT_THAT(problem(description(Type::Llama, {"Q_PROJ"})), HasSubstr("is the name of no linear layer"));
}

// A frozen matrix has products for the output and for the gradient of the input.
TEST(Lora, OperationsOfFrozenMatricesAreCountedWithoutTheirGradients) {
  const Description without = description(Type::Gpt, {}, 0), with = description(Type::Gpt, {"c_attn"});
  const double matrices = 2 * (4 * 8 * 8 + 2 * 8 * 32) + 5 * 8, adapters = 2 * 2 * (8 + 24);
  EXPECT_EQ(build(without).stated_flops_per_sample - build(with).stated_flops_per_sample, 4 * (2 * matrices - 6 * adapters));
}

TEST(Lora, TensorRanksMayNotShareAKeyValueHead) {
  Description d = description(Type::Llama, {"q_proj"});
  d.key_value_heads = 1;
  EXPECT_EQ(tensor_problem(d, 2), "does not divide model.key_value_heads 1, as model.lora requires");
  d.lora = {};
  EXPECT_EQ(tensor_problem(d, 2), "");
}

}  // namespace
}  // namespace trivet::model
