// Compares layers whose context ranks each have a part of every sequence with one rank that has all tokens.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>

#include "core/error.h"
#include "model/attention.h"
#include "model/embedding.h"
#include "model/ring_attention.h"
#include "tests/model/layer_on_ranks.h"
#include "tests/support/golden_attention.h"

namespace trivet::model {
namespace {

// "0-3 12-15" of a rank.
std::string tokens_in_words(const SequencePart& part, int64_t length) {
  std::string text;
  for (const TokenRange& range : part.tokens(length))
    text += fmt::format("{}{}-{}", text.empty() ? "" : " ", range.begin, range.end - 1);
  return text;
}

TEST(SequencePart, NeighboursShareTheTokensOfTheirRunInOrder) {
  const auto of_ranks = [](int ranks, int neighbours, int64_t length) {
    std::vector<std::string> words;
    for (int rank = 0; rank < ranks; ++rank)
      words.push_back(tokens_in_words({rank, ranks, SequencePart::Cut::Balanced, neighbours}, length));
    return words;
  };
  using testing::ElementsAre;
  EXPECT_THAT(of_ranks(2, 1, 16), ElementsAre("0-3 12-15", "4-7 8-11"));
  EXPECT_THAT(of_ranks(4, 2, 16), ElementsAre("0-3", "12-15", "4-7", "8-11"));
  EXPECT_THAT(of_ranks(6, 3, 24), ElementsAre("0-3", "4-5 18-19", "20-23", "6-9", "10-11 12-13", "14-17"));
  EXPECT_THAT(of_ranks(6, 2, 18), ElementsAre("0-2", "15-17", "3-5", "12-14", "6-8", "9-11"));
  EXPECT_THAT(of_ranks(6, 3, 18), ElementsAre("0-2", "3-5", "6-8", "9-11", "12-14", "15-17"));  // not divisible by 4
  EXPECT_THAT(of_ranks(4, 4, 16), ElementsAre("0-3", "4-7", "8-11", "12-15"));
}

enum class Shared { Heads, Keys, KeysInOrder, Ring, RingInOrder, HeadsAndRing };

class ContextParallel : public testing::TestWithParam<std::tuple<int, Shared>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  Shared shared() const { return std::get<1>(GetParam()); }
  ContextKind kind() const {
    if (shared() == Shared::Heads) return ContextKind::Ulysses;
    if (shared() == Shared::HeadsAndRing) return ContextKind::UlyssesRing;
    return has_ring() ? ContextKind::Ring : ContextKind::Gather;
  }
  bool has_ring() const { return shared() >= Shared::Ring; }
  int neighbours() const { return shared() == Shared::HeadsAndRing ? 2 : 1; }
  SequencePart::Cut cut() const {
    const bool in_order = shared() == Shared::Heads || shared() == Shared::KeysInOrder || shared() == Shared::RingInOrder;
    return in_order ? SequencePart::Cut::InOrder : SequencePart::Cut::Balanced;
  }
  // In a ring, dropout of probabilities has draws of its own.
  TransformerBlock::Options as_on_one_rank(TransformerBlock::Options options) const {
    if (has_ring()) options.attention.dropout = 0;
    return options;
  }
  void expect_same(const Layer& layer, LayerCase it) const {
    it.context_kind = kind(), it.neighbours = neighbours(), it.cut = cut();
    expect_as_one_rank_in_parts(layer, it, size(), Axis::Context);
  }
  void expect_same(const TransformerBlock::Options& options, const Shape& shape) const {
    expect_same(TransformerBlock("b", as_on_one_rank(options)), {.input_shape = shape});
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
  window.attention.window = has_ring() ? 0 : 3;
  window.attention.soft_cap = 2;
  window.attention.head_size = 6;
  // The sequence is longer than the original length, a rank's part of it is not.
  TransformerBlock::Options scaled = llama_block(0, 4);
  scaled.attention.rotary_scaling = {
      .type = RotaryScalingType::LongRope, .factor = 2, .original_length = 7, .short_factors = {1, 1}, .long_factors = {2, 5}};
  TransformerBlock::Options both_ways = gpt_block(0.2);
  both_ways.attention.causal = false;
  TransformerBlock::Options after = llama_block(0, 8);
  after.attention.whole_norm = after.post_norm = true;
  after.pre_norm = false;
  after.attention.query_growth = 0.7;
  after.attention.query_step = 3;
  TransformerBlock::Options sinks = window;
  sinks.attention.sinks = true;
  for (const TransformerBlock::Options& options : {normalized, window, scaled, after, sinks, latent_block(0)})
    expect_same(options, {2, 8, 32});
  expect_same(both_ways, {2, 8, 24});
}

// No target is lost where the parts of two ranks meet, and those that do not count are left out on each.
TEST_P(ContextParallel, EmbeddingAndHeadAreAsOnOneRank) {
  expect_same(Embedding("e", {.vocabulary = 61, .hidden = 6, .positions = 9, .dropout = 0.3}),
              {.input_shape = {3, 8}, .vocabulary = 61});
  expect_same(LmHead({.vocabulary = 61, .hidden = 6, .rows_of_chunk = 5}, make_norm(NormKind::LayerNorm, 6, 1e-5, true)),
              {.input_shape = {3, 8, 6}, .targets_below = 61});
}

// A layer of which only the core does something: its projections are the first rows of identities, so its input is qkv, and its
// result begins with the core's.
LayerCase only_core(const test::GoldenAttention& golden) {
  return {.input_shape = {golden.sequences, golden.tokens, golden.width()},
          .documents = golden.documents,
          .value = [&golden](const std::string& name, int64_t e) {
            const int64_t width = golden.width(), query_width = golden.query_width(), row = e / width, column = e % width;
            if (name == "x") return golden.qkv(e);
            if (name == "dy") return column < query_width ? golden.dout(row * query_width + column) : 0;
            const int64_t columns = name == "qkv.weight" ? width : query_width;
            return e / columns == e % columns ? 1.0 : 0.0;
          }};
}

TEST_P(ContextParallel, RandomCasesOfAttentionAreAsInPyTorch) {
  int compared = 0;
  for (const test::GoldenAttention& golden : test::golden_attention()) {
    if (has_ring() && (golden.window > 0 || !golden.documents.empty())) continue;
    ++compared;
    const Attention attention("a", {.hidden = golden.width(),
                                    .heads = golden.heads,
                                    .key_value_heads = golden.key_value_heads,
                                    .head_size = golden.head_size,
                                    .bias = false,
                                    .causal = golden.causal,
                                    .window = golden.window,
                                    .score_scale = golden.scale,
                                    .soft_cap = golden.soft_cap});
    LayerCase it = only_core(golden);
    it.context_kind = kind(), it.neighbours = neighbours(), it.cut = cut();
    const std::vector<Outcome> ranks = run_ranks(attention, it, Way::Fused, size(), false, Axis::Context);
    for (int rank = 0; rank < size(); ++rank) {
      int64_t own = 0;  // the token's place among those of the rank
      for (int64_t sequence = 0; sequence < golden.sequences; ++sequence)
        for (const TokenRange& range : it.part_of(rank, size()).tokens(golden.tokens))
          for (int64_t token = range.begin; token < range.end; ++token, ++own)
            golden.expect_token(
                sequence * golden.tokens + token, [&](int64_t e) { return ranks[rank].y[own * golden.width() + e]; },
                [&](int64_t e) { return ranks[rank].dx[own * golden.width() + e]; }, " on rank " + std::to_string(rank));
    }
  }
  EXPECT_EQ(compared, has_ring() ? 12 : 24);
}

// 4 N D elements of heads for each token, of which a rank keeps its own part: (N + 2 N + N) D with as many key/value heads.
// Gathered: each of the others gets 2 G D elements forward, (3 N + 2 G) D backward, and N statistics. In a ring 2 G D go on
// c - 1 times in each pass, and gradients of as many c times. Two neighbours exchange half of their heads, and hand on G / 2 of
// the tokens of both.
TEST_P(ContextParallel, AttentionSendsItsHeadsOnce) {
  const TransformerBlock block("b", gpt_block(0));
  const int64_t ranks = size(), others = ranks - 1, own = 2 * (8 / ranks) * 24 * 8, statistics = 2 * (8 / ranks) * 4 * 8;
  const LayerCase it{.input_shape = {2, 8, 24}, .context_kind = kind(), .neighbours = neighbours()};
  const auto sent = [&](Way way) { return run_ranks(block, it, way, size(), false, Axis::Context)[0].traffic.bytes_sent; };
  if (kind() == ContextKind::Ulysses) {
    EXPECT_EQ(sent(Way::Evaluated), 4 * own * others / ranks);
    EXPECT_EQ(sent(Way::Fused), 8 * own * others / ranks);
  } else if (kind() == ContextKind::UlyssesRing) {
    const int64_t runs = ranks / 2, exchanged = 4 * own / 2;
    EXPECT_EQ(sent(Way::Evaluated), exchanged + 2 * own * (runs - 1));
    EXPECT_EQ(sent(Way::Fused), 2 * exchanged + 4 * own * (runs - 1) + 2 * own * runs);
  } else {
    EXPECT_EQ(sent(Way::Evaluated), 2 * own * others);
    EXPECT_EQ(sent(Way::Fused),
              kind() == ContextKind::Ring ? 4 * own * others + 2 * own * ranks : (7 * own + statistics) * others);
  }
}

std::string name_of_sharing(const testing::TestParamInfo<std::tuple<int, Shared>>& which) {
  constexpr std::array kNames{"Heads", "Keys", "KeysInOrder", "ARing", "ARingInOrder", "HeadsAndARing"};
  return fmt::format("{}RanksShare{}", std::get<0>(which.param), kNames[static_cast<size_t>(std::get<1>(which.param))]);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ContextParallel,
                         testing::Combine(testing::Values(2, 4),
                                          testing::Values(Shared::Heads, Shared::Keys, Shared::KeysInOrder, Shared::Ring,
                                                          Shared::RingInOrder)),
                         name_of_sharing);
INSTANTIATE_TEST_SUITE_P(Neighbours, ContextParallel,
                         testing::Combine(testing::Values(4, 8), testing::Values(Shared::HeadsAndRing)), name_of_sharing);

// 3 ranks have 4 heads, or one key for all, and 7 tokens of each of their two chunks.
TEST(ContextParallel, OwnTokensNeedNoHeadsOfTheirOwn) {
  for (const ContextKind kind : {ContextKind::Gather, ContextKind::Ring})
    for (const SequencePart::Cut cut : {SequencePart::Cut::InOrder, SequencePart::Cut::Balanced}) {
      const auto expect_same = [&](const TransformerBlock::Options& options, const Shape& shape) {
        expect_as_one_rank_in_parts(TransformerBlock("b", options), {.input_shape = shape, .context_kind = kind, .cut = cut}, 3,
                                    Axis::Context);
      };
      expect_same(gpt_block(kind == ContextKind::Gather ? 0.3 : 0), {2, 42, 24});
      expect_same(llama_block(0, 1), {1, 42, 32});
    }
}

TransformerBlock::Options block_of_six_heads(int64_t key_value_heads) {
  TransformerBlock::Options options = llama_block(0.3, key_value_heads);
  options.attention.heads = 6;
  options.attention.head_size = 4;
  options.attention.dropout = 0;
  return options;
}

// In runs of three, the second rank has the end of the early chunk and the beginning of the late one. With 18 tokens no cut is
// balanced.
TEST(ContextParallel, RunsMayHaveAnyNumberOfNeighbours) {
  for (const int neighbours : {2, 3})
    for (const int64_t tokens : {24, 18}) {
      const auto expect_same = [&](const Layer& layer, LayerCase it) {
        it.context_kind = ContextKind::UlyssesRing;
        it.cut = SequencePart::Cut::Balanced;
        it.neighbours = neighbours;
        expect_as_one_rank_in_parts(layer, it, 6, Axis::Context);
      };
      expect_same(Embedding("e", {.vocabulary = 61, .hidden = 6, .positions = 24, .dropout = 0.3}),
                  {.input_shape = {2, tokens}, .vocabulary = 61});
      for (const int64_t key_value_heads : {1, 6})
        expect_same(TransformerBlock("b", block_of_six_heads(key_value_heads)), {.input_shape = {2, tokens, 32}});
    }
}

// All scores are equal and value j is the j-th unit vector, so results show what was dropped: token 8 + i keeps some of the
// keys of the other rank, and others of its own.
TEST(ContextParallel, ARingDropsProbabilitiesOfEachPairByThemselves) {
  constexpr int64_t kOwn = 8, kSize = 16;
  on_axis(2, [&](const RankAxis& axis) {
    RankAxis ring = axis;
    ring.context_kind = ContextKind::Ring;
    Values qkv(kOwn * 3 * kSize), out(kOwn * kSize), sums(kOwn);
    for (int64_t i = 0; i < kOwn; ++i) qkv[i * 3 * kSize + 2 * kSize + ring.rank() * kOwn + i] = 1;
    const auto kernels = kernels::make_cpu_kernels(1);
    MemoryMeter meter;
    Arena arena("ring", host_allocator(), meter, MemoryCategory::Activations, 1 << 16);
    Context context{*kernels, arena};
    const RingAttention attention(
        context, ring,
        {{.heads = 1, .key_value_heads = 1, .dropout = {.rate = 0.5f, .key = 3}}, {.heads = 1, .key_value_heads = 1}, kSize});
    attention.forward({view_of(qkv, {1, kOwn, 3 * kSize}), view_of(out, {1, kOwn, kSize}), view_of(sums, {1, 1, kOwn})});
    int dropped = 0, alike = 0, pairs = 0;
    for (int64_t i = 0; ring.rank() == 1 && i < kOwn; ++i)
      for (int64_t j = 0; j <= i; ++j, ++pairs) {
        dropped += out[i * kSize + kOwn + j] == 0;
        alike += (out[i * kSize + j] == 0) == (out[i * kSize + kOwn + j] == 0);
      }
    EXPECT_TRUE(ring.rank() == 0 || (dropped > 0 && alike < pairs)) << dropped << " dropped, " << alike << " alike";
  });
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
