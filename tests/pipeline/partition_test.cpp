#include "pipeline/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "core/error.h"

namespace trivet::pipeline {
namespace {

using Bounds = std::vector<int>;
using testing::ThrowsMessage;

std::vector<BlockFacts> blocks_that_cost(const std::vector<double>& costs) {
  std::vector<BlockFacts> blocks;
  for (const double cost : costs)
    blocks.push_back({.name = "blocks." + std::to_string(blocks.size()), .type = "transformer_block", .cost = cost});
  return blocks;
}

// An embedding, `layers` transformer blocks, and a head whose vocabulary is worth 4 blocks.
std::vector<BlockFacts> language_model(int layers) {
  std::vector<BlockFacts> blocks{{"embedding", "embedding", 4000, 0}};
  for (int i = 0; i < layers; ++i) blocks.push_back({"blocks." + std::to_string(i), "transformer_block", 1000, 6});
  blocks.push_back({"head", "lm_head", 4000, 24});
  return blocks;
}

double weight(const std::vector<double>& costs, int begin, int end) {
  return std::accumulate(costs.begin() + begin, costs.begin() + end, 0.0);
}

struct Quality {
  double heaviest = 0, squares = 0;
  Bounds reversed;                                   // the smallest of equally good ones: earlier stages have less
  auto operator<=>(const Quality&) const = default;  // NOLINT(modernize-use-nullptr): a false positive on <=>
};

Quality quality(const std::vector<double>& costs, const Bounds& bounds) {
  Quality quality;
  for (size_t stage = 0; stage + 1 < bounds.size(); ++stage) {
    const double stage_weight = weight(costs, bounds[stage], bounds[stage + 1]);
    quality.heaviest = std::max(quality.heaviest, stage_weight);
    quality.squares += stage_weight * stage_weight;
  }
  quality.reversed.assign(bounds.rbegin(), bounds.rend());
  return quality;
}

// The best of all ways to cut, found by trying each.
Quality best_of_all(const std::vector<double>& costs, int stages, const Bounds& cut = {0}) {
  const int blocks = static_cast<int>(costs.size());
  if (static_cast<int>(cut.size()) == stages) {
    Bounds whole = cut;
    whole.push_back(blocks);
    return quality(costs, whole);
  }
  Quality best{.heaviest = INFINITY};
  for (int next = cut.back() + 1; next < blocks; ++next) {
    Bounds longer = cut;
    longer.push_back(next);
    best = std::min(best, best_of_all(costs, stages, longer));
  }
  return best;
}

void expect_every_block_once(const Bounds& bounds, int blocks, int stages) {
  ASSERT_EQ(static_cast<int>(bounds.size()), stages + 1);
  EXPECT_EQ(bounds.front(), 0);
  EXPECT_EQ(bounds.back(), blocks);
  for (int stage = 0; stage < stages; ++stage) EXPECT_LT(bounds[stage], bounds[stage + 1]);
}

TEST(Partition, UniformGivesTheFirstStagesOneBlockMore) {
  const auto uniform = [](int blocks, int stages) {
    return partition(blocks_that_cost(std::vector<double>(blocks, 1)), stages, PartitionMethod::Uniform);
  };
  EXPECT_EQ(uniform(8, 4), (Bounds{0, 2, 4, 6, 8}));
  EXPECT_EQ(uniform(10, 4), (Bounds{0, 3, 6, 8, 10}));
  EXPECT_EQ(uniform(5, 5), (Bounds{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(uniform(7, 1), (Bounds{0, 7}));
  for (int blocks = 1; blocks <= 20; ++blocks)
    for (int stages = 1; stages <= blocks; ++stages) expect_every_block_once(uniform(blocks, stages), blocks, stages);
}

TEST(Partition, CostGivesTheStageOfAHeavyHeadFewerBlocks) {
  EXPECT_EQ(partition(language_model(8), 2, PartitionMethod::Cost), (Bounds{0, 7, 10}));     // 36 | 36
  EXPECT_EQ(partition(language_model(8), 3, PartitionMethod::Cost), (Bounds{0, 5, 9, 10}));  // 24 | 24 | 24
  EXPECT_EQ(partition(language_model(8), 4, PartitionMethod::Cost), (Bounds{0, 3, 6, 9, 10}));
}

TEST(Partition, ParametersCountTheEmbeddingToo) {
  EXPECT_EQ(partition(language_model(8), 2, PartitionMethod::Parameters), (Bounds{0, 5, 10}));        // 8000 | 8000
  EXPECT_EQ(partition(language_model(8), 4, PartitionMethod::Parameters), (Bounds{0, 1, 5, 9, 10}));  // 4000 each
}

TEST(Partition, TypeCountsWhatMatchesInAnyCase) {
  const Bounds even{0, 3, 5, 7, 10};  // two transformer blocks each
  EXPECT_EQ(partition(language_model(8), 4, PartitionMethod::Type, "Transformer"), even);
  EXPECT_EQ(partition(language_model(8), 4, PartitionMethod::Type, "^blocks\\."), even);
  EXPECT_EQ(partition(language_model(8), 2, PartitionMethod::Type, "blocks.[01]$|head"), (Bounds{0, 2, 10}));
}

TEST(Partition, OfEquallyGoodOnesEarlierStagesHaveFewerBlocks) {
  EXPECT_EQ(partition(blocks_that_cost({1, 1, 1, 1, 1}), 2, PartitionMethod::Cost), (Bounds{0, 2, 5}));
  EXPECT_EQ(partition(blocks_that_cost({1, 1, 1, 1, 1, 1, 1, 1, 1}), 4, PartitionMethod::Cost), (Bounds{0, 2, 4, 6, 9}));
  EXPECT_EQ(partition(blocks_that_cost({0, 0, 0}), 2, PartitionMethod::Cost), (Bounds{0, 1, 3}));
}

// One heavy block decides the maximum; the others are still dealt evenly.
TEST(Partition, BalancesTheBlocksNextToAHeavyOne) {
  EXPECT_EQ(partition(blocks_that_cost({1, 1, 1, 1, 1, 1, 100}), 3, PartitionMethod::Cost), (Bounds{0, 3, 6, 7}));
}

TEST(Partition, IsTheBestOfAllWaysToCut) {
  std::mt19937 random(7);
  for (int blocks = 1; blocks <= 9; ++blocks) {
    for (int stages = 1; stages <= blocks; ++stages) {
      for (int repeat = 0; repeat < 8; ++repeat) {
        std::vector<double> costs;
        for (int i = 0; i < blocks; ++i) costs.push_back(static_cast<double>(random() % (repeat < 4 ? 4 : 50)));
        const Bounds bounds = partition(blocks_that_cost(costs), stages, PartitionMethod::Cost);
        expect_every_block_once(bounds, blocks, stages);
        EXPECT_EQ(quality(costs, bounds), best_of_all(costs, stages)) << testing::PrintToString(costs) << " " << stages;
      }
    }
  }
}

TEST(Partition, HasTheLeastMaximumForCostsThatAreNoIntegers) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> cost(0.1, 3);
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::vector<double> costs;
    for (int i = 0; i < 10; ++i) costs.push_back(cost(random));
    const Bounds bounds = partition(blocks_that_cost(costs), 4, PartitionMethod::Cost);
    expect_every_block_once(bounds, 10, 4);
    EXPECT_NEAR(quality(costs, bounds).heaviest, best_of_all(costs, 4).heaviest, 1e-12);
  }
}

TEST(Partition, AThousandBlocksOnSixtyFourStages) {
  const auto blocks = language_model(1022);
  const Bounds bounds = partition(blocks, 64, PartitionMethod::Cost);
  expect_every_block_once(bounds, 1024, 64);
  for (size_t stage = 0; stage < 63; ++stage) EXPECT_LE(bounds[stage + 1] - bounds[stage], 18);
}

TEST(Partition, SaysWhatIsWrong) {
  const auto refused = [](int stages, PartitionMethod method, const std::string& regex, const std::string& message) {
    EXPECT_THAT([&] { partition(language_model(2), stages, method, regex); }, ThrowsMessage<ConfigError>(message));
  };
  for (const PartitionMethod method : {PartitionMethod::Uniform, PartitionMethod::Cost})
    refused(5, method, "",
            "pipeline: 5 stages need at least as many blocks, but the model has 4; make parallel.pipeline x pipeline.chunks at "
            "most 4, or use more layers");
  refused(2, PartitionMethod::Type, "mamba",
          "pipeline.partition: \"type:mamba\" matches no block; the types are embedding, transformer_block, lm_head");
  EXPECT_THAT([] { partition(language_model(2), 2, PartitionMethod::Type, "("); },
              ThrowsMessage<ConfigError>(
                  testing::AllOf(testing::HasSubstr("pipeline.partition: the regular expression of \"type:(\" is not"),
                                 testing::HasSubstr("use one such as \"type:transformer\""))));
  EXPECT_THROW(partition(language_model(2), 0, PartitionMethod::Uniform), std::logic_error);
  EXPECT_THROW(partition(blocks_that_cost({1, -1}), 1, PartitionMethod::Cost), std::logic_error);
}

}  // namespace
}  // namespace trivet::pipeline
