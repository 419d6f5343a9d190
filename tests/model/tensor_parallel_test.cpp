// Compares layers whose split parameters are shared by tensor ranks with one rank that holds all of them.
#include <gtest/gtest.h>

#include "model/embedding.h"
#include "tests/model/layer_on_ranks.h"

namespace trivet::model {
namespace {

class TensorParallel : public testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
};

TEST_P(TensorParallel, LinearWithoutASplitIsWholeOnEveryRank) {
  const Linear linear({.in = 5, .out = 7});
  const LayerCase it{.input_shape = {2, 3, 5}};
  expect_as_one_rank(linear, it, size());
  EXPECT_EQ(run_ranks(linear, it, Way::Fused, size())[0].traffic.operations, 0);
}

// check_tensor_size requires even parts of a model so that no rank waits; the mathematics does not need them.
TEST_P(TensorParallel, MlpIsAsOnOneRankAlsoInUnevenParts) {
  expect_as_one_rank(Mlp({.hidden = 6, .feed_forward = 11}), {.input_shape = {2, 3, 6}}, size());
  expect_as_one_rank(Mlp({.hidden = 6, .feed_forward = 11, .activation = Activation::SwiGlu, .bias = false}),
                     {.input_shape = {2, 3, 6}}, size());
}

TEST_P(TensorParallel, GptBlockIsAsOnOneRank) {
  for (double dropout : {0.0, 0.3})
    expect_as_one_rank(TransformerBlock("b", gpt_block(dropout)), {.input_shape = {2, 5, 24}}, size());
}

// With 4 ranks and one or two key/value heads, neighbours hold the same one.
TEST_P(TensorParallel, LlamaBlockIsAsOnOneRankWithAnyNumberOfKeyValueHeads) {
  for (int64_t key_value_heads : {1, 2, 4, 8})
    for (double dropout : {0.0, 0.3})
      expect_as_one_rank(TransformerBlock("b", llama_block(dropout, key_value_heads)), {.input_shape = {2, 5, 32}}, size());
  expect_as_one_rank(TransformerBlock("b", llama_block(0.1, 2, true)), {.input_shape = {2, 5, 32}}, size());
}

TEST_P(TensorParallel, HeadsOfTheirOwnSizeWithBiasesOfQkvAreAsOnOneRank) {
  for (int64_t key_value_heads : {2, 8}) {
    TransformerBlock::Options options = llama_block(0.3, key_value_heads);
    options.attention.head_size = 6;
    options.attention.qkv_bias = true;
    expect_as_one_rank(TransformerBlock("b", options), {.input_shape = {2, 5, 32}}, size());
  }
}

// Each rank has its heads' part of the gradients of gains that all ranks hold.
TEST_P(TensorParallel, NormsOfQueriesAndKeysAreAsOnOneRankWithAnyNumberOfKeyValueHeads) {
  for (int64_t key_value_heads : {1, 2, 8}) {
    TransformerBlock::Options options = llama_block(0.3, key_value_heads);
    options.attention.qk_norm = true;
    expect_as_one_rank(TransformerBlock("b", options), {.input_shape = {2, 5, 32}}, size());
  }
}

// Ranks gather the projections; each has the whole gradient of both gains.
TEST_P(TensorParallel, NormsOfWholeProjectionsAndNormsAfterOnlyAreAsOnOneRank) {
  for (const int64_t key_value_heads : {4, 8}) {
    TransformerBlock::Options options = llama_block(0.3, key_value_heads);
    options.attention.whole_norm = true;
    options.attention.out_bias = true;
    options.pre_norm = false;
    options.post_norm = true;
    options.residual_scale = 0.4;
    expect_as_one_rank(TransformerBlock("b", options), {.input_shape = {2, 5, 32}}, size());
  }
}

// Each rank has its heads' part of the gradient of the rotary key that all heads share.
TEST_P(TensorParallel, LatentAttentionIsAsOnOneRank) {
  expect_as_one_rank(TransformerBlock("b", latent_block(0.3)), {.input_shape = {2, 5, 32}}, size());
}

TEST_P(TensorParallel, SinksOfAttentionAreAsOnOneRank) {
  TransformerBlock::Options options = llama_block(0.3, 4);
  options.attention.sinks = true;
  expect_as_one_rank(TransformerBlock("b", options), {.input_shape = {2, 5, 32}}, size());
}

TEST_P(TensorParallel, ABlockWithSecondNormsAndGegluIsAsOnOneRank) {
  TransformerBlock::Options options = llama_block(0.3, 4);
  options.mlp.activation = Activation::GeGlu;
  options.post_norm = true;
  expect_as_one_rank(TransformerBlock("b", options), {.input_shape = {2, 5, 32}}, size());
}

TEST_P(TensorParallel, EmbeddingIsAsOnOneRankToTheLastBit) {
  for (int64_t positions : {0, 9})
    for (double dropout : {0.0, 0.4}) {
      const Embedding embedding(
          "e", {.vocabulary = 61, .hidden = 6, .positions = positions, .scale = positions > 0 ? 1.0 : 3.0, .dropout = dropout});
      const LayerCase it{.input_shape = {3, 7}, .vocabulary = 61};
      expect_as_one_rank(embedding, it, size());
      const Outcome whole = run_layer(embedding, it, Way::Fused, nullptr);
      for (const Outcome& outcome : run_ranks(embedding, it, Way::Fused, size())) EXPECT_EQ(outcome.y, whole.y);
    }
}

TEST_P(TensorParallel, HeadIsAsOnOneRankInOneChunkAndInSeveral) {
  for (int64_t rows_of_chunk : {0, 1, 4})
    expect_as_one_rank(
        LmHead({.vocabulary = 61, .hidden = 6, .rows_of_chunk = rows_of_chunk}, make_norm(NormKind::LayerNorm, 6, 1e-5, true)),
        {.input_shape = {3, 5, 6}, .targets_below = 61}, size());
}

TEST_P(TensorParallel, GroupOfOneChangesNoBitAndSendsNothing) {
  const TransformerBlock block("b", llama_block(0.3, 2));
  const LayerCase it{.input_shape = {2, 5, 32}};
  const Outcome whole = run_layer(block, it, Way::Fused, nullptr), one = run_ranks(block, it, Way::Fused, 1)[0];
  EXPECT_EQ(one.y, whole.y);
  EXPECT_EQ(one.dx, whole.dx);
  EXPECT_EQ(one.gradients, whole.gradients);
  EXPECT_EQ(one.traffic.operations, 0);
}

TEST_P(TensorParallel, BlockSumsActivationsFourTimes) {
  const TransformerBlock block("b", gpt_block(0.1));
  const LayerCase it{.input_shape = {2, 5, 24}};
  for (Way way : {Way::Fused, Way::Apart}) {
    for (const Outcome& outcome : run_ranks(block, it, way, size())) {
      EXPECT_EQ(outcome.traffic.operations, 4);
      EXPECT_EQ(outcome.traffic.bytes_sent, 4 * bytes_of_all_reduce(2 * 5 * 24, 8, size()));
    }
  }
  for (const Outcome& outcome : run_ranks(block, it, Way::Evaluated, size())) EXPECT_EQ(outcome.traffic.operations, 2);
}

INSTANTIATE_TEST_SUITE_P(Sizes, TensorParallel, testing::Values(2, 4),
                         [](const auto& size) { return "On" + std::to_string(size.param) + "Ranks"; });

TEST(TensorParallelLayers, HoldersOfOneKeyValueHeadHaveTheSameBitsOfItsGradient) {
  const Attention attention("a", {.hidden = 32, .heads = 8, .key_value_heads = 2, .rotary_base = 100});
  const int64_t own_queries = 2 * 4 * 32;  // elements of the weight's rows of a rank's two query heads
  for (Way way : {Way::Fused, Way::Accumulated}) {
    const std::vector<Outcome> ranks = run_ranks(attention, {.input_shape = {2, 5, 32}}, way, 4);
    const auto key_value_rows = [&](size_t rank) {
      return Values(ranks[rank].gradients[0].begin() + own_queries, ranks[rank].gradients[0].end());
    };
    EXPECT_EQ(key_value_rows(0), key_value_rows(1));
    EXPECT_EQ(key_value_rows(2), key_value_rows(3));
    EXPECT_NE(key_value_rows(0), key_value_rows(2));
  }
}

}  // namespace
}  // namespace trivet::model
