#include "autotune/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"

namespace trivet::autotune {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

model::Model gpt(int64_t layers, int64_t hidden) {
  return model::build({.layers = layers, .hidden = hidden, .heads = 16, .sequence_length = 2048, .vocabulary_size = 51200});
}

const Alternative* find(const SearchResult& result, const std::string& choice) {
  for (const Alternative& alternative : result.alternatives)
    if (alternative.choice == choice) return &alternative;
  return nullptr;
}

// 1.3 B parameters: 23 GB of states. One device would do, and what splits layers only costs.
TEST(Search, TakesTheSimplestLayoutWhereAllFit) {
  const model::Model model = gpt(24, 2048);
  const Cluster cluster = cluster_named("h100");
  const SearchResult result = search(model, cluster, {.devices = 8, .train_batch_size = 64});
  ASSERT_FALSE(result.ranking.empty());
  const Layout& best = result.ranking.front().layout;
  EXPECT_EQ(best.tensor, 1);
  EXPECT_EQ(best.pipeline, 1);
  EXPECT_EQ(best.recompute, Recompute::None);
  for (size_t i = 1; i < result.ranking.size(); ++i)
    EXPECT_GE(result.ranking[i].step.seconds.total(), result.ranking[i - 1].step.seconds.total());
  const Alternative* tensor = find(result, "tensor 8");
  ASSERT_TRUE(tensor);
  EXPECT_TRUE(tensor->fits);
  EXPECT_THAT(tensor->why, HasSubstr("% slower: "));
  EXPECT_THAT(find(result, "recompute full")->why, HasSubstr("recomputation"));
}

// 30 B parameters in 14 x 39 GB: whole states of 16 bytes fill them.
TEST(Search, SaysByHowMuchAChoiceDoesNotFit) {
  const model::Model model = gpt(48, 7168);
  const SearchResult result = search(model, cluster_named("a100-40"), {.devices = 14, .train_batch_size = 56});
  ASSERT_FALSE(result.ranking.empty());
  EXPECT_FALSE(std::ranges::all_of(result.alternatives, &Alternative::fits));
  for (const Alternative& alternative : result.alternatives)
    EXPECT_THAT(alternative.why, HasSubstr(alternative.fits ? "% slower: " : " GiB over at best")) << alternative.choice;
}

// The same as trying all of them with the model itself.
TEST(Search, FindsTheFastestThatFits) {
  const model::Model model = gpt(8, 1024);
  const Cluster cluster = cluster_named("a100");
  const SearchResult result = search(model, cluster, {.devices = 4, .train_batch_size = 16}, 1000000);
  const StepModel steps(model, cluster);
  EXPECT_EQ(static_cast<int64_t>(result.ranking.size()), result.fitting);
  for (const Candidate& candidate : result.ranking) {
    EXPECT_EQ(candidate.layout.devices(), 4);
    EXPECT_EQ(candidate.layout.global_batch(), 16);
    EXPECT_EQ(candidate.step.seconds.total(), steps.predict(candidate.layout).seconds.total());
    EXPECT_LE(result.ranking.front().step.seconds.total(), candidate.step.seconds.total());
  }
}

TEST(Search, SaysWhatIsShortWhereNothingFits) {
  const model::Model model = gpt(48, 8192);
  const Cluster cluster = cluster_named("a100-40");
  const SearchResult result = search(model, cluster, {.devices = 2, .train_batch_size = 2});
  EXPECT_TRUE(result.ranking.empty());
  EXPECT_GT(result.tried, 0);
  EXPECT_EQ(result.fitting, 0);
  const std::string text = to_text(result, cluster);
  EXPECT_THAT(text, HasSubstr("nothing fits: the smallest needs "));
  EXPECT_THAT(text, HasSubstr("more than a device has"));
  EXPECT_THAT(text, Not(HasSubstr("why not")));
}

TEST(Search, RefusesWhatNoLayoutDivides) {
  const model::Model model = gpt(4, 1024);  // 6 blocks
  EXPECT_THAT(
      [&] { search(model, cluster_named("h100"), {.devices = 7, .train_batch_size = 16}); },
      ThrowsMessage<ConfigError>("search: no layout divides 7 devices among 6 blocks and a batch of 16: the data axis must "
                                 "divide train_batch_size, the pipeline cannot have more ranks than blocks; 6 or 8 devices "
                                 "would do, or another train_batch_size"));
  Cluster small = cluster_named("h100");
  small.nodes = 2;
  EXPECT_THAT(
      [&] { search(model, small, {.devices = 64, .train_batch_size = 64}); },
      ThrowsMessage<ConfigError>("search: 64 devices are more than cluster \"h100\" has (2 nodes of 8); use at most 16"));
}

TEST(Search, TextAndJsonSayTheSame) {
  const model::Model model = gpt(8, 1024);
  Cluster cluster = cluster_named("h200");
  cluster.price_per_device_hour = 3;
  const SearchResult result = search(model, cluster, {.devices = 8, .train_batch_size = 32}, 3);
  const std::string text = to_text(result, cluster), json = to_json(result, cluster);
  EXPECT_THAT(text, HasSubstr(to_string(result.ranking[0].layout)));
  EXPECT_THAT(text, HasSubstr("for a million tokens, at 3 a device and hour"));
  EXPECT_THAT(text, HasSubstr("why not\n  tensor 2 "));
  EXPECT_THAT(json, HasSubstr("\"why_not\""));
  EXPECT_THAT(json, HasSubstr("\"zero_stage\""));
}

}  // namespace
}  // namespace trivet::autotune
