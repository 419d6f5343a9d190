#include "data/mixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "data/microbatch_loader.h"
#include "data/token_array.h"
#include "data/token_source.h"
#include "data/training_data.h"
#include "tests/data/expect_error.h"

namespace trivet::data {
namespace {

using testing::ElementsAre;

TEST(MixtureQuotas, AreTheSharesOfABlockByLargestRemainders) {
  EXPECT_THAT(mixture_quotas({{"a", 1}}), ElementsAre(65536));
  EXPECT_THAT(mixture_quotas({{"a", 3}, {"b", 1}}), ElementsAre(49152, 16384));
  EXPECT_THAT(mixture_quotas({{"a", 1}, {"b", 1}, {"c", 1}}), ElementsAre(21846, 21845, 21845)) << "the first of equal ones";
  EXPECT_THAT(mixture_quotas({{"a", 0.7}, {"b", 0.3}}), ElementsAre(45875, 19661));
  expect_error(
      [] {
        mixture_quotas({{"a", 1}, {"tiny.tokens", 1e-6}});
      },
      ExitCode::Usage,
      "data.sources: the weight 1e-06 of \"tiny.tokens\" is less than 1/65536 of all weights; use a larger one, or "
      "leave the source out");
}

class MixtureOfThree : public testing::Test {
 protected:
  const std::vector<DataSource> sources_{{"a", 5}, {"b", 2}, {"c", 1}};
  const std::vector<int64_t> sizes_{1000, 7, 30000};
};

TEST_F(MixtureOfThree, SharesHoldExactlyAfterABlockAndCloselyBefore) {
  const Mixture mixture(sources_, sizes_, 1234, true);
  std::vector<int64_t> counts(3);
  for (int64_t place = 0; place < 2 * kMixtureBlock; ++place) {
    if (place == 4096) {
      EXPECT_NEAR(static_cast<double>(counts[0]), 4096 * 5.0 / 8, 150) << "five standard deviations of a draw";
      EXPECT_NEAR(static_cast<double>(counts[2]), 4096 * 1.0 / 8, 105);
    }
    if (place % 13000 == 0) {
      EXPECT_EQ(mixture.counts(place), counts) << place;
    }
    ++counts[mixture.at(place).source];
  }
  EXPECT_THAT(counts, ElementsAre(2 * 40960, 2 * 16384, 2 * 8192));
  EXPECT_EQ(mixture.counts(2 * kMixtureBlock), counts);
}

TEST_F(MixtureOfThree, EachSourceGoesThroughAllOfItsSamplesInEachEpoch) {
  for (const bool shuffle : {true, false}) {
    const Mixture mixture(sources_, sizes_, 1234, shuffle);
    std::vector<std::set<int64_t>> seen(3);
    std::vector<int64_t> epochs(3), last(3, -1);
    for (int64_t place = 0; place < kMixtureBlock + 5000; ++place) {
      const Mixture::Choice choice = mixture.at(place);
      const size_t source = choice.source;
      if (choice.epoch != epochs[source]) {
        EXPECT_EQ(static_cast<int64_t>(seen[source].size()), sizes_[source]) << "an epoch ends with its last sample";
        EXPECT_EQ(choice.epoch, ++epochs[source]);
        seen[source].clear();
        last[source] = -1;
      }
      EXPECT_TRUE(seen[source].insert(choice.sample).second) << "twice in an epoch";
      if (!shuffle) {
        EXPECT_EQ(choice.sample, last[source] + 1);
      }
      last[source] = choice.sample;
    }
  }
}

TEST_F(MixtureOfThree, DependsOnTheSeed) {
  const Mixture one(sources_, sizes_, 1, true), two(sources_, sizes_, 2, true), again(sources_, sizes_, 1, true);
  int different_sources = 0;
  for (int64_t place = 0; place < 1000; ++place) {
    different_sources += static_cast<int>(one.at(place).source != two.at(place).source);
    EXPECT_EQ(one.at(place).source, again.at(place).source);
    EXPECT_EQ(one.at(place).sample, again.at(place).sample);
  }
  EXPECT_GT(different_sources, 300);
}

// Tokens first, first + 1 ...
std::shared_ptr<TokenSequence> numbers(int32_t first, int64_t count) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return std::make_shared<TokenArray>(ids, 1000);
}

class MixedSources : public testing::Test {
 protected:
  MixedSources() {
    data_.sources = {{"small.tokens", 1}, {"large.tokens", 3}};
    std::vector<std::unique_ptr<TrainingData>> parts;
    parts.push_back(text_data({numbers(0, 21), numbers(100, 5), bytes_tokenizer(), 1000}, 2));
    parts.push_back(text_data({numbers(200, 201), nullptr, bytes_tokenizer(), 1000}, 2));
    mixed_ = mixed_data(std::move(parts), data_.sources);
  }
  DataConfig data_;
  std::unique_ptr<TrainingData> mixed_;
};

TEST_F(MixedSources, HaveTheSamplesOfAllSources) {
  const auto train = mixed_->train();
  EXPECT_EQ(train->samples(), 110);
  EXPECT_THAT(train->sizes_of_sources(), ElementsAre(10, 100));
  std::vector<int32_t> input(2), targets(2);
  const auto input_of = [&](int64_t sample) {
    train->fill(sample, 0, std::as_writable_bytes(std::span(input)), targets);
    return input;
  };
  EXPECT_THAT(input_of(9), ElementsAre(18, 19));
  EXPECT_THAT(input_of(10), ElementsAre(200, 201));
  EXPECT_THAT(input_of(109), ElementsAre(398, 399));
  EXPECT_EQ(mixed_->validation()->samples(), 2);
  EXPECT_EQ(mixed_->sizes(),
            "25 % small.tokens (21 training tokens, 5 validation tokens); 75 % large.tokens (201 training tokens, 0 validation "
            "tokens)");
}

// The same microbatches for every number of ranks, as without a mixture.
TEST_F(MixedSources, WhatAStepReadsDoesNotDependOnTheLayout) {
  const auto sizes = mixed_->train()->sizes_of_sources();
  const auto batch_of = [&](int64_t ranks, int64_t step) {
    std::vector<int32_t> all;
    for (int64_t m = 0; m < 8 / ranks; ++m)
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const BatchLayout layout{.micro_batch = 2, .accumulation = 8 / ranks, .data_size = ranks, .data_rank = rank};
        const MicrobatchLoader loader(mixed_->train(), make_sampler(data_, sizes, 7, layout, "test"), layout);
        HostMicrobatch out;
        loader.fill(step, m, out);
        all.insert(all.end(), out.targets.begin(), out.targets.end());
      }
    return all;
  };
  for (const int64_t step : {0, 1, 50}) {
    EXPECT_EQ(batch_of(1, step), batch_of(2, step));
    EXPECT_EQ(batch_of(1, step), batch_of(8, step));
  }
  EXPECT_NE(batch_of(1, 0), batch_of(1, 1));
}

TEST_F(MixedSources, AnEpochIsAsManySamplesAsTheSourcesHave) {
  const BatchLayout layout{.micro_batch = 2, .accumulation = 5};
  const auto sampler = make_sampler(data_, {10, 100}, 7, layout, "test");
  EXPECT_EQ(sampler->steps_of(1), 11);
  EXPECT_EQ(sampler->epochs_in(10), 0);
  EXPECT_EQ(sampler->epochs_in(11), 1);
  const std::vector<int64_t> read = sampler->samples_of_sources(11);
  EXPECT_EQ(read[0] + read[1], 110);
  EXPECT_TRUE(make_sampler({}, {10}, 7, layout, "test")->samples_of_sources(11).empty());
}

TEST_F(MixedSources, TheDigestTellsTheWeights) {
  const auto digest_with = [&](double weight) {
    std::vector<std::unique_ptr<TrainingData>> parts;
    for (int part = 0; part < 2; ++part) parts.push_back(text_data({numbers(0, 9), nullptr, bytes_tokenizer(), 1000}, 2));
    return mixed_data(std::move(parts), {{"a", weight}, {"b", 1}})->train_digest();
  };
  EXPECT_EQ(digest_with(1), digest_with(1));
  EXPECT_NE(digest_with(1), digest_with(2));
}

}  // namespace
}  // namespace trivet::data
