// Compares layers whose tensor ranks each hold a part of the tokens between blocks with one rank that holds all tokens.
#include <gtest/gtest.h>

#include "model/embedding.h"
#include "tests/model/layer_on_ranks.h"

namespace trivet::model {
namespace {

class SequenceParallel : public testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
};

TEST_P(SequenceParallel, LayersAreAsOnOneRank) {
  expect_as_one_rank_in_parts(Linear({.in = 5, .out = 7}), {.input_shape = {2, 4, 5}}, size());
  expect_as_one_rank_in_parts(TransformerBlock("b", gpt_block(0.3)), {.input_shape = {2, 8, 24}}, size());
  expect_as_one_rank_in_parts(TransformerBlock("b", llama_block(0, 2, true)), {.input_shape = {1, 8, 32}}, size());
  TransformerBlock::Options normalized = llama_block(0, 4);
  normalized.attention.qk_norm = true;
  expect_as_one_rank_in_parts(TransformerBlock("b", normalized), {.input_shape = {1, 8, 32}}, size());
  TransformerBlock::Options after = llama_block(0.3, 4);
  after.attention.whole_norm = after.attention.out_bias = after.post_norm = true;
  after.pre_norm = false;
  after.residual_scale = 0.4;
  expect_as_one_rank_in_parts(TransformerBlock("b", after), {.input_shape = {2, 8, 32}}, size());
  expect_as_one_rank_in_parts(TransformerBlock("b", latent_block(0.3)), {.input_shape = {2, 8, 32}}, size());
  expect_as_one_rank_in_parts(Embedding("e", {.vocabulary = 61, .hidden = 6, .positions = 9, .dropout = 0.3}),
                              {.input_shape = {3, 8}, .vocabulary = 61}, size());
  expect_as_one_rank_in_parts(
      LmHead({.vocabulary = 61, .hidden = 6, .rows_of_chunk = 5}, make_norm(NormKind::LayerNorm, 6, 1e-5, true)),
      {.input_shape = {3, 8, 6}, .targets_below = 61}, size());
}

// In forward, a block gathers its tokens twice, for the projection to queries and for the feed-forward, and scatters two sums:
// together this sends as much as the two all-reduces of a rank with all activations. Backward gathers dy of the row-parallel
// products, and x of the column-parallel ones again.
TEST_P(SequenceParallel, SendsAsMuchForward) {
  const TransformerBlock block("b", gpt_block(0));
  const LayerCase it{.input_shape = {2, 8, 24}};
  const int64_t bytes = 2 * 8 * 24 * 8, once = bytes * (size() - 1) / size();
  EXPECT_EQ(run_ranks(block, it, Way::Evaluated, size(), true)[0].traffic.bytes_sent, 4 * once);
  EXPECT_EQ(run_ranks(block, it, Way::Fused, size(), true)[0].traffic.bytes_sent, (4 + 6) * once);
  EXPECT_EQ(run_ranks(block, it, Way::Apart, size(), true)[0].traffic.bytes_sent, (4 + 8) * once);
}

INSTANTIATE_TEST_SUITE_P(Sizes, SequenceParallel, testing::Values(2, 4),
                         [](const auto& size) { return "On" + std::to_string(size.param) + "Ranks"; });

}  // namespace
}  // namespace trivet::model
