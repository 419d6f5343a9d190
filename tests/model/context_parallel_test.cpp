// Compares layers whose context ranks each have a part of every sequence with one rank that has all tokens.
#include <gmock/gmock.h>

#include "core/error.h"
#include "model/embedding.h"
#include "tests/model/layer_on_ranks.h"

namespace trivet::model {
namespace {

class ContextParallel : public testing::TestWithParam<int> {
 protected:
  void expect_same(const Layer& layer, const LayerCase& it) const {
    expect_as_one_rank_in_parts(layer, it, GetParam(), Axis::Context);
  }
  void expect_same(const TransformerBlock::Options& options, const Shape& shape) const {
    expect_same(TransformerBlock("b", options), {.input_shape = shape});
  }
};

// Sequences of one sample and of several are packed in different ways. Four ranks share one or two key/value heads.
TEST_P(ContextParallel, BlocksAreAsOnOneRank) {
  for (const int64_t batch : {1, 3}) {
    expect_same(gpt_block(0.3), {batch, 8, 24});
    for (const int64_t key_value_heads : {1, 2, 4, 8}) expect_same(llama_block(0.3, key_value_heads, true), {batch, 8, 32});
  }
}

TEST_P(ContextParallel, AttentionOfEveryKindIsAsOnOneRank) {
  TransformerBlock::Options normalized = llama_block(0, 8);
  normalized.attention.qk_norm = true;
  TransformerBlock::Options window = llama_block(0, 4);
  window.attention.window = 3;
  window.attention.soft_cap = 2;
  window.attention.head_size = 6;
  TransformerBlock::Options both_ways = gpt_block(0.2);
  both_ways.attention.causal = false;
  for (const TransformerBlock::Options& options : {normalized, window}) expect_same(options, {2, 8, 32});
  expect_same(both_ways, {2, 8, 24});
}

// No target is lost where the parts of two ranks meet, and those that do not count are left out on each.
TEST_P(ContextParallel, EmbeddingAndHeadAreAsOnOneRank) {
  expect_same(Embedding("e", {.vocabulary = 61, .hidden = 6, .positions = 9, .dropout = 0.3}),
              {.input_shape = {3, 8}, .vocabulary = 61});
  expect_same(LmHead({.vocabulary = 61, .hidden = 6, .rows_of_chunk = 5}, make_norm(NormKind::LayerNorm, 6, 1e-5, true)),
              {.input_shape = {3, 8, 6}, .targets_below = 61});
}

// 4 N D elements of heads for each token, of which a rank keeps its own part: (N + 2 N + N) D with as many key/value heads.
TEST_P(ContextParallel, AttentionSendsItsHeadsOnce) {
  const TransformerBlock block("b", gpt_block(0));
  const int64_t size = GetParam(), own = 2 * (8 / size) * 24 * 8, once = own * (size - 1) / size;
  const LayerCase it{.input_shape = {2, 8, 24}};
  EXPECT_EQ(run_ranks(block, it, Way::Evaluated, GetParam(), false, Axis::Context)[0].traffic.bytes_sent, 4 * once);
  EXPECT_EQ(run_ranks(block, it, Way::Fused, GetParam(), false, Axis::Context)[0].traffic.bytes_sent, 8 * once);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ContextParallel, testing::Values(2, 4),
                         [](const auto& size) { return "On" + std::to_string(size.param) + "Ranks"; });

TEST(ContextParallel, RefusesHeadsThatDoNotDivide) {
  EXPECT_THAT(
      [] {
        run_ranks(TransformerBlock("b", gpt_block(0)), {.input_shape = {1, 6, 24}}, Way::Fused, 3, false, Axis::Context);
      },
      testing::ThrowsMessage<ConfigError>(testing::HasSubstr("parallel.context: 3 ranks do not divide the 4 heads")));
}

}  // namespace
}  // namespace trivet::model
