#include "autotune/search.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <tuple>
#include <vector>

#include "autotune/plan_page.h"
#include "autotune/prediction.h"
#include "core/error.h"
#include "engine/config/load.h"
#include "report/page_drawing.h"

namespace trivet::autotune {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

constexpr int64_t kGib = int64_t{1} << 30;
constexpr double kTie = 5e-4;          // times that differ by less count as equal
constexpr double kUsableShare = 0.95;  // of a device's memory; the rest is the reserve

model::Model gpt(int64_t layers, int64_t hidden) {
  return model::build(
      {.layers = layers, .hidden_size = hidden, .heads = 16, .sequence_length = 2048, .vocabulary_size = 51200});
}

const Alternative* find(const SearchResult& result, const std::string& choice) {
  for (const Alternative& alternative : result.alternatives)
    if (alternative.choice == choice) return &alternative;
  return nullptr;
}

// 1.3 B parameters have 23 GB of states. They fit on one device, so splitting layers only costs time.
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
    EXPECT_GT((1 + kTie) * result.ranking[i].step.seconds.total(), result.ranking[i - 1].step.seconds.total());
  const Alternative* tensor = find(result, "tensor 8");
  ASSERT_TRUE(tensor);
  EXPECT_TRUE(tensor->fits);
  EXPECT_THAT(tensor->why, HasSubstr("% slower: "));
  EXPECT_THAT(find(result, "recompute full")->why, HasSubstr("recomputation"));
}

// 30 B parameters with 16 bytes of states each fill 14 devices of 39 GB.
TEST(Search, SaysByHowMuchAChoiceDoesNotFit) {
  const model::Model model = gpt(48, 7168);
  const SearchResult result =
      search(model, cluster_named("a100-40"), {.devices = 14, .train_batch_size = 56, .offload = false});
  ASSERT_FALSE(result.ranking.empty());
  EXPECT_FALSE(std::ranges::all_of(result.alternatives, &Alternative::fits));
  for (const Alternative& alternative : result.alternatives)
    EXPECT_THAT(alternative.why, HasSubstr(alternative.fits ? "% slower: " : " GiB over at best")) << alternative.choice;
}

// "exposed data axis 12 % of the step, 0.5 s more; kernels 40 % of the step, 0.1 s less": 0.4
double named_seconds(const std::string& why) {
  static const std::regex part(R"(([0-9.e+-]+) s (more|less))");
  double sum = 0;
  for (std::sregex_iterator it(why.begin(), why.end(), part), end; it != end; ++it)
    sum += std::stod((*it)[1]) * ((*it)[2] == "more" ? 1 : -1);
  return sum;
}

// The parts that are named make up the difference, whether the choices trade one part for another or not.
TEST(Search, ExplainsHowMuchSlowerAChoiceIs) {
  int64_t explained = 0, several = 0;
  for (const auto& [gpt_layers, hidden, name] : {std::tuple{24, 2048, "h100"}, {48, 7168, "a100"}, {8, 1024, "a100-40"}}) {
    const model::Model model = gpt(gpt_layers, hidden);
    const SearchResult result = search(model, cluster_named(name), {.devices = 16, .train_batch_size = 64}, 3);
    ASSERT_FALSE(result.ranking.empty());
    for (const Alternative& alternative : result.alternatives) {
      if (alternative.why.find("% slower: ") == std::string::npos) continue;
      const double slower = alternative.best.step.seconds.total() - result.ranking.front().step.seconds.total();
      EXPECT_GT(named_seconds(alternative.why), 0.89 * slower) << alternative.choice << ": " << alternative.why;
      EXPECT_LT(named_seconds(alternative.why), 1.11 * slower) << alternative.choice << ": " << alternative.why;
      ++explained;
      several += alternative.why.find(';') != std::string::npos;
    }
  }
  EXPECT_GT(explained, 20);
  EXPECT_GT(several, 2);
}

TEST(Search, NamesSlowerChunksForAnyNumberOfRows) {
  const model::Model model = gpt(48, 7168);
  const SearchSpace space{.devices = 16, .train_batch_size = 64};
  const auto rows = [&](size_t top) { return search(model, cluster_named("a100"), space, top).ranking; };
  const std::vector<Candidate> all = rows(100000), first = rows(20);
  ASSERT_EQ(first.size(), 20);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i].other_chunks, all[i].other_chunks) << i;
  EXPECT_TRUE(std::ranges::any_of(first, [](const Candidate& one) { return !one.other_chunks.empty(); }));
}

// All layouts in the order in which they are tried, with the model's own prediction for each.
std::vector<Candidate> all_tried(const model::Model& model, const Cluster& cluster, const SearchSpace& space) {
  const StepModel steps(model, cluster, space.types);
  std::vector<Candidate> tried;
  for_each_layout(model, cluster, space, [&](const Layout& layout) {
    for_each_variant(steps, cluster, space, layout, [&](const Layout& variant, const StepBytes& bytes) {
      tried.push_back({.layout = variant, .step = steps.predict(variant)});
      EXPECT_EQ(bytes.total(), tried.back().step.bytes.total());
    });
  });
  return tried;
}

// Takes the fastest and all that are as fast from the list, orders these by their memory, and goes on with the rest. Layouts
// that also need equally much memory keep the order in which they are tried, simpler ones first.
std::vector<Candidate> by_preference(std::vector<Candidate> rest) {
  const auto seconds = [](const Candidate& candidate) { return candidate.step.seconds.total(); };
  std::vector<Candidate> ordered;
  while (!rest.empty()) {
    const double fastest = seconds(*std::ranges::min_element(rest, {}, seconds));
    const auto others = std::stable_partition(
        rest.begin(), rest.end(), [&](const Candidate& candidate) { return seconds(candidate) < (1 + kTie) * fastest; });
    std::vector<Candidate> ties(rest.begin(), others);
    std::ranges::stable_sort(ties, {}, [](const Candidate& candidate) { return candidate.step.bytes.total(); });
    ordered.insert(ordered.end(), ties.begin(), ties.end());
    rest.erase(rest.begin(), others);
  }
  return ordered;
}

// The first of the layouts that differ in chunks alone, with the chunks of the others.
std::vector<Candidate> one_for_all_chunks(const std::vector<Candidate>& ordered) {
  std::vector<Candidate> firsts;
  for (const Candidate& candidate : ordered) {
    const auto same = std::ranges::find_if(firsts, [&](const Candidate& first) {
      Layout layout = first.layout;
      layout.chunks = candidate.layout.chunks;
      return layout == candidate.layout;
    });
    if (same == firsts.end())
      firsts.push_back(candidate);
    else
      same->other_chunks.push_back(candidate.layout.chunks);
  }
  return firsts;
}

TEST(Search, RanksAllThatFitByTimeThenByMemoryThenInTheOrderTried) {
  const model::Model model = gpt(8, 1024);
  const Cluster cluster = cluster_named("a100");
  const SearchSpace space{.devices = 4, .train_batch_size = 16};
  std::vector<Candidate> expected = all_tried(model, cluster, space);
  const size_t tried = expected.size();
  std::erase_if(expected, [&](const Candidate& candidate) { return candidate.step.bytes.total() > kUsableShare * 78 * kGib; });
  expected = by_preference(std::move(expected));
  const auto seconds = [](const Candidate& candidate) { return candidate.step.seconds.total(); };
  int ties = 0, slower = 0;
  for (size_t i = 1; i < expected.size(); ++i) {
    ties += seconds(expected[i - 1]) == seconds(expected[i]) ? 1 : 0;
    slower += seconds(expected[i - 1]) > seconds(expected[i]) ? 1 : 0;  // by less than a tie, and smaller
  }
  EXPECT_GT(ties, 0);
  EXPECT_GT(slower, 0);
  const size_t fitting = expected.size();
  expected = one_for_all_chunks(expected);
  EXPECT_LT(expected.size(), fitting);
  const SearchResult result = search(model, cluster, space, 1000000);
  EXPECT_EQ(result.fitting, static_cast<int64_t>(fitting));
  EXPECT_EQ(result.tried, static_cast<int64_t>(tried));
  ASSERT_EQ(result.ranking.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(result.ranking[i].layout, expected[i].layout) << i;
    EXPECT_EQ(result.ranking[i].other_chunks, expected[i].other_chunks) << i;
    EXPECT_EQ(seconds(result.ranking[i]), seconds(expected[i])) << i;
    EXPECT_EQ(expected[i].layout.devices(), 4);
    EXPECT_EQ(expected[i].layout.global_batch(), 16);
  }
  const SearchResult few = search(model, cluster, space, 5);
  ASSERT_EQ(few.ranking.size(), 5);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(few.ranking[i].layout, expected[i].layout) << i;
}

// Llama 3 8B on 64 H100s: ZeRO-1, 2 and 3 and two sizes of the microbatch take the same time within a millionth.
TEST(Search, PrefersLessMemoryWhereTimesAreEqual) {
  const model::Model model = model::build({.type = model::Type::Llama,
                                           .layers = 32,
                                           .hidden_size = 4096,
                                           .heads = 32,
                                           .key_value_heads = 8,
                                           .feed_forward_size = 14336,
                                           .sequence_length = 8192,
                                           .vocabulary_size = 128256});
  const Cluster cluster = cluster_named("h100");
  const SearchResult result = search(model, cluster, {.devices = 64, .train_batch_size = 256});
  ASSERT_GT(result.ranking.size(), 3u);
  const Candidate& best = result.ranking.front();
  int as_fast = 0;
  for (const Candidate& other : result.ranking) {
    if (other.step.seconds.total() >= (1 + kTie) * best.step.seconds.total()) continue;
    EXPECT_LE(best.step.bytes.total(), other.step.bytes.total());
    ++as_fast;
  }
  EXPECT_GE(as_fast, 3);
  EXPECT_EQ(best.layout.zero_stage, 3);
  EXPECT_LT(best.step.bytes.total(), 0.6 * 78 * kGib);
  EXPECT_THAT(find(result, "stage 1")->why, testing::MatchesRegex("as fast, with [0-9.]+ GiB more"));
}

// The same layouts are tried; those that would use the reserve do not fit.
TEST(Search, LeavesTheReserveOfADeviceFree) {
  const model::Model model = gpt(24, 2048);
  Cluster cluster = cluster_named("a100-40");
  const SearchSpace space{.devices = 2, .train_batch_size = 16, .offload = false};
  const auto most = [&](const SearchResult& result) {
    double bytes = 0;
    for (const Candidate& candidate : result.ranking) bytes = std::max(bytes, candidate.step.bytes.total());
    return bytes;
  };
  const SearchResult kept = search(model, cluster, space, 1000000);
  EXPECT_LE(most(kept), kUsableShare * 38 * kGib);
  EXPECT_THAT(to_text(kept, cluster),
              HasSubstr("of 38.0 GiB, 8 per node\nreserve   1.9 GiB, so 36.1 GiB of each device can be used\n"));
  EXPECT_EQ(nlohmann::json::parse(to_json(kept, cluster))["cluster"]["reserve_bytes"], 38 * kGib / 20);
  cluster.device.reserve_bytes = 0;
  const SearchResult all = search(model, cluster, space, 1000000);
  EXPECT_GT(most(all), kUsableShare * 38 * kGib);
  EXPECT_LE(most(all), 38.0 * kGib);
  EXPECT_GT(all.fitting, kept.fitting);
}

TEST(Search, SaysWhatIsShortWhereNothingFits) {
  const model::Model model = gpt(48, 8192);
  const Cluster cluster = cluster_named("a100-40");
  const SearchResult result = search(model, cluster, {.devices = 2, .train_batch_size = 2, .offload = false});
  EXPECT_TRUE(result.ranking.empty());
  EXPECT_GT(result.tried, 0);
  EXPECT_EQ(result.fitting, 0);
  double least = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : all_tried(model, cluster, {.devices = 2, .train_batch_size = 2, .offload = false}))
    least = std::min(least, candidate.step.bytes.total());
  const double usable = kUsableShare * 38, over = least / kGib - usable;
  EXPECT_EQ(result.smallest.step.bytes.total(), least);
  // Each parameter has two bytes of weight, two of gradient and twelve of optimizer, sharded over two devices: no layout holds
  // less.
  EXPECT_GT(least, 16.0 * static_cast<double>(model::parameter_count(model)) / 2);
  const std::string text = to_text(result, cluster);
  EXPECT_THAT(text, HasSubstr(fmt::format("nothing fits: the smallest layout needs {:.1f} GiB of {:.1f}, {:.2f} GiB over\n",
                                          over + usable, usable, over)));
  EXPECT_THAT(text, Not(HasSubstr("why not")));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
  EXPECT_THAT(text, Not(HasSubstr("inf")));
  EXPECT_GT(result.smallest.step.seconds.total(), 0);
}

// 39 B parameters of 16 bytes each do not fit on 8 devices of 38 GiB, and nearly fill 16.
TEST(Search, NamesTheNearestNumberOfDevicesThatFits) {
  const model::Model model = gpt(48, 8192);
  Cluster cluster = cluster_named("a100-40");
  cluster.device.reserve_bytes = 0;
  const SearchResult result = search(model, cluster, {.devices = 4, .train_batch_size = 8, .offload = false});
  ASSERT_TRUE(result.nearest);
  const Layout& nearest = result.nearest->layout;
  EXPECT_EQ(nearest.devices(), 16);
  EXPECT_EQ(nearest.global_batch(), 8);
  EXPECT_TRUE(fits(result.nearest->step.bytes, cluster));
  // Searching with 16 devices finds the same layout. Half as many are too few.
  const SearchResult asked = search(model, cluster, {.devices = 16, .train_batch_size = 8, .offload = false});
  EXPECT_EQ(nearest, asked.ranking.front().layout);
  EXPECT_TRUE(search(model, cluster, {.devices = 8, .train_batch_size = 8, .offload = false}).ranking.empty());
  EXPECT_EQ(what_would_fit(result, cluster), "16 devices are enough: " + to_string(nearest));
  EXPECT_THAT(to_text(result, cluster), HasSubstr(what_would_fit(result, cluster) + "\n"));
}

TEST(Search, SaysThatTheBatchMustGrowForMoreDevices) {
  const model::Model model = gpt(1, 16384);  // 3 blocks, the largest with 3.2 B parameters
  Cluster cluster = cluster_named("a100-40");
  // One sequence has no data axis: nothing shards the 51 GB of states of that block.
  const SearchResult result = search(model, cluster, {.devices = 1, .train_batch_size = 1, .most_tensor = 1, .offload = false});
  ASSERT_TRUE(result.nearest);
  EXPECT_GT(result.nearest->layout.global_batch(), 1);
  EXPECT_THAT(what_would_fit(result, cluster),
              HasSubstr(fmt::format(", with train_batch_size {} instead of 1", result.nearest->layout.global_batch())));
  cluster.nodes = 1, cluster.devices_per_node = 2;
  const SearchResult few = search(model, cluster, {.devices = 1, .train_batch_size = 1, .most_tensor = 1, .offload = false});
  EXPECT_FALSE(few.nearest);
  EXPECT_EQ(what_would_fit(few, cluster), "doubling the devices up to the 2 of the cluster does not make it fit");
}

// 13 B parameters on one device of 80 GB: 26 GB of weights fit, 156 GB of states do not.
TEST(Search, OffloadsStatesThatDoNotFit) {
  const model::Model model = gpt(40, 5120);
  Cluster cluster = cluster_named("h100");
  const SearchResult result = search(model, cluster, {.devices = 1, .train_batch_size = 4});
  ASSERT_FALSE(result.ranking.empty());
  const Candidate& best = result.ranking.front();
  EXPECT_TRUE(best.layout.offload_optimizer);
  EXPECT_EQ(best.step.bytes.optimizer, 0);
  EXPECT_GT(best.step.bytes.host, 12.0 * static_cast<double>(model::parameter_count(model)));
  EXPECT_THAT(find(result, "offload none")->why, HasSubstr(" GiB over at best"));
  // If the host is too small, host memory is what is short.
  cluster.host.memory_bytes = 100 * kGib;
  const SearchResult small = search(model, cluster, {.devices = 1, .train_batch_size = 4});
  EXPECT_TRUE(small.ranking.empty());
  cluster.host = {};
  EXPECT_FALSE(search(model, cluster, {.devices = 1, .train_batch_size = 4}).smallest.layout.offload_optimizer);
  // Offloading is not tried where everything fits without it.
  const SearchResult fitting = search(gpt(24, 1024), cluster_named("h100"), {.devices = 1, .train_batch_size = 4});
  EXPECT_FALSE(fitting.ranking.front().layout.offload_optimizer);
}

// 12 heads, 2 of them of keys, and 18 tokens, which 2 x 6 ranks do not share evenly.
TEST(SearchSpace, HasTheContextRanksThatCanExchangeHeads) {
  const std::string text = R"({"model": {"type": "llama", "layers": 2, "hidden_size": 48, "heads": 12, "key_value_heads": 2,
    "feed_forward_size": 96, "sequence_length": 18}, "data": {"train": "a.txt"}, "training": {"steps": 1},
    "train_batch_size": 2})";
  const auto accepted = [&](int64_t tensor, int64_t context, bool sequence_parallel) {
    try {
      parse_config(text, "c.json",
                   {fmt::format("parallel.tensor={}", tensor), fmt::format("parallel.context={}", context),
                    "parallel.context_kind=ulysses", fmt::format("parallel.sequence_parallel={}", sequence_parallel)});
      return true;
    } catch (const ConfigError&) {
      return false;
    }
  };
  const model::Model model = model::build(model::with_vocabulary(parse_config(text, "c.json").model, 64));
  int found = 0;
  for (const int64_t tensor : {1, 2, 4, 8})
    for (int64_t context = 1; context <= 13; ++context) {
      const SearchSpace space{
          .devices = tensor * context, .train_batch_size = 1, .context = ContextSearch::Always, .zero_stages = {0}};
      bool has = false, splits = false;
      for_each_layout(model, cluster_named("h100"), space, [&](const Layout& layout) {
        if (layout.tensor != tensor || layout.context != context) return;
        has = true, splits = layout.sequence_parallel;
      });
      found += has && context > 1 ? 1 : 0;
      EXPECT_EQ(has, accepted(tensor, context, false)) << tensor << " x " << context;
      if (has && tensor > 1) {
        EXPECT_EQ(splits, accepted(tensor, context, true)) << tensor << " x " << context;
      }
    }
  EXPECT_GE(found, 5);
}

// A sequence of 2.4 M tokens. Tensor ranks divide the 6 heads and the 8 devices of a node, so there are at most 2 of them.
TEST(Search, SharesASequenceThatFitsNowhereElse) {
  const model::Model model = model::build({.type = model::Type::Llama,
                                           .layers = 10,
                                           .hidden_size = 1536,
                                           .heads = 6,
                                           .key_value_heads = 6,
                                           .sequence_length = 3 * 786432,
                                           .vocabulary_size = 51200});
  const Cluster cluster = cluster_named("h100");
  const auto search_with = [&](ContextSearch context) {
    return search(model, cluster, {.devices = 12, .train_batch_size = 1, .context = context, .offload = false});
  };
  const SearchResult result = search_with(ContextSearch::WhereItHelps), without = search_with(ContextSearch::Never);
  EXPECT_TRUE(without.ranking.empty());
  ASSERT_FALSE(result.ranking.empty());
  for (const Candidate& candidate : result.ranking) EXPECT_GT(candidate.layout.context, 1);
  const Candidate& best = result.ranking.front();
  EXPECT_THAT(best.config,
              testing::Contains(std::pair<std::string, std::string>("parallel.context", std::to_string(best.layout.context))));
  EXPECT_THAT(find(result, "context 1")->why, HasSubstr(" GiB over at best"));
  const std::string text = to_text(result, cluster);
  EXPECT_THAT(text, HasSubstr("context   ranks are tried, because sequences have 2,359,296 tokens\n"));
  EXPECT_THAT(text, HasSubstr(fmt::format(" x context {} x tensor ", best.layout.context)));
  EXPECT_EQ(nlohmann::json::parse(to_json(result, cluster))["ranking"][0]["mesh"]["context"], best.layout.context);
}

// With short sequences there are context ranks only where nothing else is possible: one sequence on more devices than blocks.
TEST(Search, TriesContextRanksForShortSequencesOnlyIfTheyAreNeeded) {
  const model::Model model = gpt(4, 1024);  // 6 blocks
  const Cluster cluster = cluster_named("h100");
  const auto tried = [&](const SearchSpace& space) { return search(model, cluster, space).tried; };
  const SearchSpace space{.devices = 8, .train_batch_size = 8};
  SearchSpace never = space, always = space;
  never.context = ContextSearch::Never, always.context = ContextSearch::Always;
  EXPECT_EQ(tried(space), tried(never));
  EXPECT_GT(tried(always), tried(never));
  EXPECT_THAT(to_text(search(model, cluster, space), cluster),
              HasSubstr("context   ranks are not tried, because some layout fits without them and sequences have 2,048 tokens, "
                        "less than 16,384; --set parallel.context=2 tries them\n"));
  const SearchResult one = search(model, cluster, {.devices = 16, .train_batch_size = 1, .most_tensor = 1});
  EXPECT_EQ(one.context, "ranks are tried, because no layout divides the devices without them");
  EXPECT_GT(one.ranking.front().layout.context, 1);
  // A byte less than what two devices need without them.
  SearchSpace two{.devices = 2, .train_batch_size = 2, .most_tensor = 1, .context = ContextSearch::Never, .offload = false};
  Cluster small = cluster;
  small.device.memory_bytes = static_cast<int64_t>(search(model, cluster, two).smallest.step.bytes.total()) - 1;
  small.device.reserve_bytes = 0;
  EXPECT_TRUE(search(model, small, two).ranking.empty());
  two.context = ContextSearch::WhereItHelps;
  const SearchResult needed = search(model, small, two);
  EXPECT_EQ(needed.context, "ranks are tried, because no layout fits without them");
  ASSERT_FALSE(needed.ranking.empty());
  EXPECT_EQ(needed.ranking.front().layout.context, 2);
}

TEST(Search, RefusesWhatNoLayoutDivides) {
  const model::Model model = gpt(4, 1024);  // 6 blocks
  EXPECT_THAT(
      [&] { search(model, cluster_named("h100"), {.devices = 7, .train_batch_size = 16}); },
      ThrowsMessage<ConfigError>("search: no layout divides 7 devices among 6 blocks and a batch of 16: the data axis must "
                                 "divide train_batch_size, the pipeline cannot have more ranks than blocks; use 6 or 8 "
                                 "devices, or another train_batch_size"));
  Cluster small = cluster_named("h100");
  small.nodes = 2;
  EXPECT_THAT([&] { search(model, small, {.devices = 64, .train_batch_size = 64}); },
              ThrowsMessage<ConfigError>("cluster \"h100\": 64 devices are more than it has (2 nodes of 8); use at most 16"));
}

// The memory of others is predicted, so it is compared with that which was predicted for the first, whatever its plan says.
TEST(Search, ComparesPredictedMemoryWithPredictedMemory) {
  const model::Model model = gpt(24, 2048);
  const SearchSpace space{.devices = 8, .train_batch_size = 64};
  const SearchResult predicted = search(model, cluster_named("h100"), space, 3);
  const SearchResult planned = search(model, cluster_named("h100"), space, 3, [](const ConfigKeys&) -> StepBytes {
    return {.parameters = static_cast<double>(40 * kGib)};
  });
  ASSERT_TRUE(planned.planned);
  ASSERT_EQ(planned.alternatives.size(), predicted.alternatives.size());
  int as_fast = 0;
  for (size_t i = 0; i < planned.alternatives.size(); ++i) {
    EXPECT_EQ(planned.alternatives[i].why, predicted.alternatives[i].why) << planned.alternatives[i].choice;
    as_fast += planned.alternatives[i].why.starts_with("as fast, with ");
  }
  EXPECT_GT(as_fast, 0);
}

// The first two layouts that fit by the model are refuted: one because its plan needs too much memory, one by the engine.
TEST(Search, TakesTheFastestWhosePlanFits) {
  const model::Model model = gpt(8, 1024);
  const Cluster cluster = cluster_named("a100");
  const SearchSpace space{.devices = 4, .train_batch_size = 16};
  const SearchResult predicted = search(model, cluster, space, 3);
  EXPECT_FALSE(predicted.planned);
  int plans = 0;
  const SearchResult result = search(model, cluster, space, 3, [&](const ConfigKeys&) -> StepBytes {
    if (++plans == 2) throw ConfigError("key: not this one");
    return {.parameters = static_cast<double>((plans == 1 ? 80 : 40) * kGib)};
  });
  EXPECT_EQ(plans, 3);
  EXPECT_TRUE(result.planned);
  ASSERT_EQ(result.ranking.size(), 3);
  EXPECT_EQ(result.ranking[0].layout, predicted.ranking[2].layout);
  EXPECT_EQ(result.ranking[0].step.bytes.total(), static_cast<double>(40 * kGib));
  ASSERT_EQ(result.refuted.size(), 2);
  EXPECT_EQ(result.refuted[0].candidate.layout, predicted.ranking[0].layout);
  EXPECT_EQ(result.refuted[0].why, "5.90 GiB over by its plan");
  EXPECT_EQ(result.refuted[1].why, "key: not this one");
  EXPECT_THAT(to_text(result, cluster), HasSubstr(to_string(predicted.ranking[0].layout) + ": 5.90 GiB over by its plan\n"));
  // If every plan is refused, four are tried and the ranking stays a prediction.
  plans = 0;
  const SearchResult none = search(model, cluster, space, 3, [&](const ConfigKeys&) -> StepBytes {
    ++plans;
    throw ConfigError("no");
  });
  EXPECT_EQ(plans, 4);
  EXPECT_FALSE(none.planned);
  EXPECT_EQ(none.ranking.size(), 3);
}

TEST(Search, SaysWhatIsShortWhereEveryPlanIsRefuted) {
  const model::Model model = gpt(2, 1024);
  const Cluster cluster = cluster_named("a100");
  const SearchSpace space{.devices = 1, .train_batch_size = 1, .most_tensor = 1};  // only the three ways to recompute differ
  const auto refuted = [](const ConfigKeys&) { return StepBytes{.parameters = static_cast<double>(81 * kGib)}; };
  const SearchResult result = search(model, cluster, space, 3, refuted);
  EXPECT_EQ(result.fitting, 3);
  EXPECT_EQ(result.refuted.size(), 3);
  EXPECT_THAT(to_text(result, cluster), HasSubstr("nothing fits: the smallest layout needs 81.0 GiB of 74.1, 6.90 GiB over\n"));
}

TEST(Search, TextAndJsonSayTheSame) {
  const model::Model model = gpt(8, 1024);
  Cluster cluster = cluster_named("h200");
  cluster.price_per_device_hour = 3;
  const SearchResult result = search(model, cluster, {.devices = 8, .train_batch_size = 32}, 3);
  const std::string text = to_text(result, cluster, 2e13);
  const auto json = nlohmann::json::parse(to_json(result, cluster, 2e13));
  ASSERT_EQ(json["ranking"].size(), 3);
  EXPECT_THAT(text, HasSubstr("\n  step ms  MFU %     GiB  compute"));
  for (size_t i = 0; i < 3; ++i) {
    const auto& of = json["ranking"][i];
    const auto& seconds = of["seconds"];
    const double step = of["step_seconds"];
    const auto percent = [&](const char* part) { return 100 * seconds[part].get<double>() / step; };
    const std::vector<int64_t> chunks = of.value("slower_chunks", std::vector<int64_t>{});
    const std::string slower = chunks.empty() ? "" : fmt::format(" (slower: {})", fmt::join(chunks, ", "));
    // The row of the text shows the numbers of the JSON.
    EXPECT_THAT(text, HasSubstr(fmt::format(
                          "{:9.3f} {:6.1f} {:7.1f} {:8.1f} {:6.1f} {:6.1f} {:7.1f} {:6.1f} {:6.1f} {:6.1f} {:6.1f}   {}\n",
                          1000 * step, 100 * of["model_flops_utilization"].get<double>(),
                          of["memory_bytes"]["total"].get<double>() / kGib, percent("compute"), percent("recompute"),
                          percent("tensor"), percent("context"), percent("expert"), percent("bubble"), percent("data"),
                          percent("optimizer") + percent("offload"), to_string(result.ranking[i].layout) + slower)));
    double sum = 0;
    for (const auto& [name, value] : seconds.items()) sum += value.get<double>();
    EXPECT_NEAR(sum, step, 1e-12 * step);  // the same terms, added in a different order
    EXPECT_EQ(of["mesh"]["tensor"], result.ranking[i].layout.tensor);
    EXPECT_EQ(of["zero_stage"], result.ranking[i].layout.zero_stage);
    EXPECT_EQ(of["overlap_comm"], true);
  }
  ASSERT_EQ(json["why_not"].size(), result.alternatives.size());
  for (const auto& alternative : json["why_not"])
    EXPECT_THAT(text, HasSubstr(fmt::format("  {:22} {}\n", alternative["choice"].get<std::string>(),
                                            alternative["why"].get<std::string>())));
  // 8 devices at 3 an hour cost 8 x 3 / 3600 a second.
  const auto& price = json["ranking"][0]["price"];
  const double token = 8 * 3.0 / 3600 / json["ranking"][0]["tokens_per_second"].get<double>();
  EXPECT_DOUBLE_EQ(price["per_token"], token);
  EXPECT_DOUBLE_EQ(price["per_1e9_tokens"], 1e9 * token);
  EXPECT_DOUBLE_EQ(price["per_1e12_tokens"], 1e12 * token);
  EXPECT_THAT(text, HasSubstr(fmt::format("price     {} for 1 M tokens, {} for 1 B and {} for 1 T, at 3 per device and hour\n",
                                          figure(1e6 * token), figure(1e9 * token), figure(1e12 * token))));
  EXPECT_DOUBLE_EQ(json["run"]["price"], 2e13 * token);
  const int64_t price_of_run = std::llround(2e13 * token / 100) * 100;
  const double days = 2e13 / json["ranking"][0]["tokens_per_second"].get<double>() / 86400;
  EXPECT_DOUBLE_EQ(json["run"]["seconds"], days * 86400);
  EXPECT_THAT(text, HasSubstr(fmt::format("run       20 T tokens: {:.0f} days, {},{:03} at 3 per device and hour\n", days,
                                          price_of_run / 1000, price_of_run % 1000)));
  EXPECT_THAT(text, Not(HasSubstr("between nodes"))) << "all devices are in one node";
}

// The tensor axis stays in a node, so that only the part of the step that leaves it can double.
TEST(Search, SaysWhatHalfTheNetworkAndOverlapAreWorth) {
  const model::Model model = gpt(24, 2048);
  Cluster cluster = cluster_named("h100");
  const SearchResult result = search(model, cluster, {.devices = 64, .train_batch_size = 64}, 20);
  const Candidate& best = result.ranking.front();
  cluster.outside.beta *= 2;
  const StepModel steps(model, cluster);
  const double halved = steps.predict(best.layout).seconds.total();
  EXPECT_EQ(result.with_half_network, halved);
  double least = halved;
  for (const Candidate& one : result.ranking) least = std::min(least, steps.predict(one.layout).seconds.total());
  EXPECT_EQ(result.best_with_half_network, least);
  EXPECT_LT(least, halved) << "another layout is faster then";
  EXPECT_EQ(steps.predict(result.best_layout_with_half_network).seconds.total(), least);
  EXPECT_THAT(to_text(result, cluster), HasSubstr(" %: " + to_string(result.best_layout_with_half_network) + "\n"));
  EXPECT_GT(halved, best.step.seconds.total());
  EXPECT_THAT(to_text(result, cluster),
              HasSubstr(fmt::format("with half the bandwidth between nodes its step takes {:.1f} % longer, and",
                                    100 * (halved / best.step.seconds.total() - 1))));
  const StepSeconds& s = best.step.seconds;
  EXPECT_THAT(to_text(result, cluster),
              HasSubstr(fmt::format("for {:.1f} % of the first's step while it computes, and for {:.1f} % while it waits\n",
                                    100 * s.hidden / s.total(), 100 * (s.tensor + s.data) / s.total())));
}

TEST(Search, ThePageSaysInWordsWhatTheTextSays) {
  const model::Model model = gpt(24, 2048);
  Cluster cluster = cluster_named("h100");
  cluster.price_per_device_hour = 2.5;
  const SearchSpace space{.devices = 64, .train_batch_size = 64};
  const SearchResult result = search(model, cluster, space);
  const std::string text = to_text(result, cluster, 1e12), page = to_html(page_of(result, model, cluster, space, 1e12));
  for (const char* name : {"run       ", "network   ", "          with half the bandwidth "}) {
    const size_t line = text.find(name) + 10;
    EXPECT_THAT(page, HasSubstr("<p>" + report::escaped(text.substr(line, text.find('\n', line) - line)) + "</p>")) << name;
  }
  EXPECT_THAT(page, HasSubstr(" days, "));
}

TEST(Figures, HaveSeparatorsAndUnits) {
  EXPECT_EQ(figure(697312.4), "697,300");
  EXPECT_EQ(figure(271.83), "271.8");
  EXPECT_EQ(figure(999.96), "1,000");
  EXPECT_EQ(figure(624161, 3), "624,000");
  EXPECT_EQ(figure(0), "0");
  EXPECT_EQ(flop_text(5.147e10), "51.47 GFLOP");
  EXPECT_EQ(flop_text(989e12), "989 TFLOP");
  EXPECT_EQ(flop_text(2.5e5), "0.25 MFLOP");
  EXPECT_THAT(step_text({.compute = 0.012, .data = 0.004}, 3358.2),
              testing::StartsWith("step      16 ms, 3,358 tokens/s\n  compute        12.000 ms    75.0 %\n"));
}

}  // namespace
}  // namespace trivet::autotune
