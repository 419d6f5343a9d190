// Compares layers whose context ranks each have a part of every sequence with one rank that has all tokens.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/error.h"
#include "model/embedding.h"
#include "tests/model/layer_on_ranks.h"

namespace trivet::model {
namespace {

enum class Shared { Heads, Keys, KeysInOrder };

class ContextParallel : public testing::TestWithParam<std::tuple<int, Shared>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  Shared shared() const { return std::get<1>(GetParam()); }
  void expect_same(const Layer& layer, LayerCase it) const {
    it.gathers_keys = shared() != Shared::Heads;
    it.cut = shared() == Shared::Keys ? SequencePart::Cut::Balanced : SequencePart::Cut::InOrder;
    expect_as_one_rank_in_parts(layer, it, size(), Axis::Context);
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
// Gathered: each of the others gets 2 G D elements forward, (3 N + 2 G) D backward, and N statistics.
TEST_P(ContextParallel, AttentionSendsItsHeadsOnce) {
  const TransformerBlock block("b", gpt_block(0));
  const int64_t ranks = size(), own = 2 * (8 / ranks) * 24 * 8, once = own * (ranks - 1) / ranks;
  const LayerCase it{.input_shape = {2, 8, 24}, .gathers_keys = shared() != Shared::Heads};
  const auto sent = [&](Way way) { return run_ranks(block, it, way, size(), false, Axis::Context)[0].traffic.bytes_sent; };
  const int64_t statistics = 2 * (8 / ranks) * 4 * 8 * (ranks - 1);
  EXPECT_EQ(sent(Way::Evaluated), it.gathers_keys ? 2 * own * (ranks - 1) : 4 * once);
  EXPECT_EQ(sent(Way::Fused), it.gathers_keys ? 7 * own * (ranks - 1) + statistics : 8 * once);
}

std::string name_of_sharing(const testing::TestParamInfo<std::tuple<int, Shared>>& which) {
  const auto& [ranks, shared] = which.param;
  return fmt::format("{}RanksShare{}", ranks,
                     shared == Shared::Heads  ? "Heads"
                     : shared == Shared::Keys ? "Keys"
                                              : "KeysInOrder");
}

INSTANTIATE_TEST_SUITE_P(Sizes, ContextParallel,
                         testing::Combine(testing::Values(2, 4),
                                          testing::Values(Shared::Heads, Shared::Keys, Shared::KeysInOrder)),
                         name_of_sharing);

// 3 ranks have 4 heads, or one key for all, and 7 tokens of each of their two chunks.
TEST(ContextParallel, GatheredKeysNeedNoHeadsOfTheirOwn) {
  for (const SequencePart::Cut cut : {SequencePart::Cut::InOrder, SequencePart::Cut::Balanced}) {
    expect_as_one_rank_in_parts(TransformerBlock("b", gpt_block(0.3)),
                                {.input_shape = {2, 42, 24}, .gathers_keys = true, .cut = cut}, 3, Axis::Context);
    expect_as_one_rank_in_parts(TransformerBlock("b", llama_block(0, 1)),
                                {.input_shape = {1, 42, 32}, .gathers_keys = true, .cut = cut}, 3, Axis::Context);
  }
}

TEST(ContextParallel, RefusesHeadsThatDoNotDivide) {
  EXPECT_THAT(
      [] {
        run_ranks(TransformerBlock("b", gpt_block(0)), {.input_shape = {1, 6, 24}}, Way::Fused, 3, false, Axis::Context);
      },
      testing::ThrowsMessage<ConfigError>(testing::HasSubstr("parallel.context: 3 ranks do not divide the 4 heads")));
}

}  // namespace
}  // namespace trivet::model
