// The order of PyTorch's DistributedSampler and DataLoader, compared with what PyTorch itself gave
// (tests/golden/sampler_reference.py).
#include "data/distributed_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "data/microbatch_loader.h"
#include "data/token_array.h"
#include "data/token_source.h"

namespace trivet::data {
namespace {

using Json = nlohmann::json;
using Rows = std::vector<int64_t>;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Json> golden_lines(bool permutations) {
  std::ifstream file(TRIVET_SOURCE_DIR "/tests/golden/sampler.jsonl");
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) {
    Json json = Json::parse(line);
    if (json.contains("permutation") == permutations) lines.push_back(std::move(json));
  }
  return lines;
}

TEST(DistributedSampler, PermutationsAreThoseOfTorchRandperm) {
  int count = 0;
  for (const Json& expected : golden_lines(true)) {
    const int64_t size = expected.at("permutation");
    const auto order = torch_permutation(size, expected.at("seed"));
    const auto shown = std::min<size_t>(8, order.size());
    EXPECT_EQ((std::vector<uint32_t>{order.begin(), order.begin() + shown}), expected.at("first")) << expected;
    EXPECT_EQ((std::vector<uint32_t>{order.end() - shown, order.end()}), expected.at("last")) << expected;
    uint64_t sum = 0;
    for (size_t i = 0; i < order.size(); ++i) sum += (i + 1) * order[i];
    EXPECT_EQ(sum, expected.at("weighted_sum")) << expected;
    ++count;
  }
  EXPECT_EQ(count, 55);
}

DistributedSamplerOptions options_of(const Json& c) {
  return {.samples = c.at("samples"),
          .seed = c.at("seed"),
          .shuffle = c.at("shuffle"),
          .drop_last = c.at("drop_last"),
          .drop_last_batch = c.at("drop_last_batch")};
}

// The batches of a rank in an epoch: its microbatches without their empty rows, and without those that are all empty.
std::vector<Rows> batches_of(const Sampler& sampler, const BatchLayout& layout, int64_t epoch) {
  std::vector<Rows> batches;
  for (int64_t step = epoch * sampler.steps_per_epoch(); step < (epoch + 1) * sampler.steps_per_epoch(); ++step)
    for (int64_t m = 0; m < layout.accumulation; ++m) {
      Rows rows;
      for (int64_t row = 0; row < layout.micro_batch; ++row)
        if (const int64_t sample = sampler.visit(step, m * layout.data_size + layout.data_rank, row).sample; sample >= 0)
          rows.push_back(sample);
      if (!rows.empty()) batches.push_back(rows);
    }
  return batches;
}

TEST(DistributedSampler, EveryRankGetsTheBatchesThatPyTorchGivesIt) {
  int count = 0;
  for (const Json& expected : golden_lines(false))
    for (const int64_t accumulation : {1, 2, 3}) {
      BatchLayout layout{
          .micro_batch = expected.at("micro_batch"), .accumulation = accumulation, .data_size = expected.at("ranks")};
      const DistributedSampler sampler(options_of(expected), layout, "a.json");
      for (layout.data_rank = 0; layout.data_rank < layout.data_size; ++layout.data_rank)
        EXPECT_EQ(batches_of(sampler, layout, expected.at("epoch")), expected.at("batches").at(layout.data_rank)) << expected;
      ++count;
    }
  EXPECT_GT(count, 500);
}

TEST(DistributedSampler, AnEpochIsAWholeNumberOfSteps) {
  const BatchLayout layout{.micro_batch = 2, .accumulation = 2, .data_size = 2};
  const DistributedSampler sampler({.samples = 13}, layout, "a.json");  // 7 samples and 4 microbatches of a rank
  EXPECT_EQ(sampler.steps_per_epoch(), 2);
  EXPECT_EQ(sampler.steps_of(3), 6);
  EXPECT_EQ(sampler.steps_of(0.3), 1);
  EXPECT_EQ(sampler.steps_of(1.2), 3);
  EXPECT_EQ(sampler.epochs_in(5), 2);
  EXPECT_EQ(sampler.epochs_in(6), 3);
  std::vector<int64_t> ends;
  for (int64_t step = 1; step <= 12; ++step)
    if (completes_epoch(sampler, step, 2)) ends.push_back(step);
  EXPECT_THAT(ends, ElementsAre(4, 8, 12));
}

TEST(DistributedSampler, ARunHasAtMostAsManyStepsAsACheckpointCanSay) {
  const DistributedSampler sampler({.samples = 13}, {.micro_batch = 2}, "a.json");
  const EndlessSampler endless(SampleOrder(13, 1, false), {.micro_batch = 2});
  for (const Sampler* each : std::initializer_list<const Sampler*>{&sampler, &endless})
    EXPECT_EQ(each->steps_of(1e300), 1'000'000'000'000);
}

// Compared with a look at each row of an epoch.
TEST(DistributedSampler, KnowsWhetherRowsAreEmpty) {
  for (const int64_t samples : {7, 8, 12, 16, 17})
    for (const int64_t accumulation : {1, 2, 3})
      for (const bool drops : {false, true}) {
        const BatchLayout layout{.micro_batch = 2, .accumulation = accumulation, .data_size = 2};
        const DistributedSampler sampler({.samples = samples, .drop_last_batch = drops}, layout, "a.json");
        bool expected = false;
        for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step)
          for (int64_t microbatch = 0; microbatch < 2 * accumulation; ++microbatch)
            for (const int64_t row : {0, 1}) expected |= sampler.visit(step, microbatch, row).sample < 0;
        EXPECT_EQ(sampler.has_empty_rows(), expected) << samples << ' ' << accumulation << ' ' << drops;
      }
}

TEST(DistributedSampler, EpochsInAnyOrderGiveTheSameSamples) {
  const BatchLayout layout{.micro_batch = 4};
  const DistributedSampler sampler({.samples = 8, .seed = 3}, layout, "a.json");
  const auto first = batches_of(sampler, layout, 0), second = batches_of(sampler, layout, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(batches_of(sampler, layout, 0), first);
}

std::string refusal_of(const DistributedSamplerOptions& options, const BatchLayout& layout) {
  try {
    const DistributedSampler sampler(options, layout, "a.json");
    return "accepted";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(DistributedSampler, RefusesARunWithoutAStep) {
  EXPECT_EQ(refusal_of({.samples = 3, .drop_last = true}, {.micro_batch = 1, .data_size = 4}),
            "a.json: data.sampler: \"pytorch\" with data.drop_last leaves no samples: 3 cannot be divided among 4 ranks; set "
            "data.drop_last to false, or use fewer ranks");
  EXPECT_EQ(
      refusal_of({.samples = 3, .drop_last_batch = true}, {.micro_batch = 4}),
      "a.json: data.sampler: \"pytorch\" with dataloader_drop_last leaves no batch: a rank has 3 samples in an epoch, and a "
      "micro batch needs 4; set dataloader_drop_last to false, or use a smaller micro batch or fewer ranks");
  EXPECT_EQ(refusal_of({.samples = 4, .drop_last = true, .drop_last_batch = true}, {.micro_batch = 1, .data_size = 4}),
            "accepted");
  EXPECT_THAT(refusal_of({.samples = DistributedSampler::kMostSamples + 1}, {}), HasSubstr("takes at most 214748363 samples"));
}

// The rows of a shorter batch do not count.
TEST(DistributedSampler, TheLoaderPadsTheLastBatchOfAnEpoch) {
  std::vector<int32_t> tokens(13);
  for (int32_t i = 0; i < 13; ++i) tokens[i] = i;
  const auto source = std::make_shared<TokenSource>(std::make_shared<TokenArray>(tokens, 13), 4);  // 3 samples
  const BatchLayout layout{.micro_batch = 2};
  const MicrobatchLoader loader(
      source, std::make_shared<DistributedSampler>(DistributedSamplerOptions{.samples = 3, .shuffle = false}, layout, "a"),
      layout);
  HostMicrobatch batch;
  loader.fill(1, 0, batch);
  EXPECT_THAT(batch.targets, ElementsAre(9, 10, 11, 12, -1, -1, -1, -1));
  loader.fill(2, 0, batch);
  EXPECT_THAT(batch.targets, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(EndlessSampler, AnEpochMayEndWithinAStep) {
  const EndlessSampler sampler(SampleOrder(10, 1, false), {.micro_batch = 2, .accumulation = 2});
  EXPECT_EQ(sampler.steps_of(1), 3);
  EXPECT_EQ(sampler.steps_of(2), 5);
  EXPECT_EQ(sampler.visit(2, 1, 1).sample, 1);  // the second of the next epoch
  std::vector<int64_t> ends;
  for (int64_t step = 1; step <= 10; ++step)
    if (completes_epoch(sampler, step, 1)) ends.push_back(step);
  EXPECT_THAT(ends, ElementsAre(3, 5, 8, 10));
  EXPECT_FALSE(completes_epoch(sampler, 3, 0));
  EXPECT_EQ(sampler.steps_per_epoch(), 0);
  EXPECT_FALSE(sampler.has_empty_rows());
}

// Several epochs may be complete after one step.
TEST(EndlessSampler, AStepMayHaveSeveralEpochs) {
  const EndlessSampler sampler(SampleOrder(2, 1, false), {.micro_batch = 5});
  EXPECT_EQ(sampler.epochs_in(1), 2);
  EXPECT_TRUE(completes_epoch(sampler, 1, 2));
  EXPECT_FALSE(completes_epoch(sampler, 1, 3));
  EXPECT_TRUE(completes_epoch(sampler, 2, 3));
}

}  // namespace
}  // namespace trivet::data
