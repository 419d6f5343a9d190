#include "data/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"

namespace trivet::data {
namespace {

// Logits whose softmax at temperature 1 is 0.5, 0.25, 0.125, 0.125.
const std::vector<float> kLogits{std::log(4.f), std::log(1.f), std::log(2.f), std::log(1.f)};

std::vector<int32_t> tokens_of(const std::vector<LikelyToken>& list) {
  std::vector<int32_t> tokens;
  for (const auto& likely : list) tokens.push_back(likely.token);
  return tokens;
}

TEST(Sampling, LikelyTokensAreTheSoftmaxMostLikelyFirst) {
  const auto all = likely_tokens(kLogits, {});
  EXPECT_EQ(tokens_of(all), (std::vector<int32_t>{0, 2, 1, 3}));
  EXPECT_NEAR(all[0].probability, 0.5, 1e-7);
  EXPECT_NEAR(all[1].probability, 0.25, 1e-7);
  EXPECT_NEAR(all[2].probability, 0.125, 1e-7);
}

TEST(Sampling, TemperatureSharpensAndFlattens) {
  // The logits are doubled or halved, so probabilities are raised to the power of 2 or 1/2 and normalized.
  EXPECT_NEAR(likely_tokens(kLogits, {.temperature = 0.5})[0].probability, 16.0 / 22, 1e-7);
  EXPECT_NEAR(likely_tokens(kLogits, {.temperature = 2})[0].probability, 2 / (2 + std::sqrt(2.0) + 2), 1e-7);
}

TEST(Sampling, TemperatureZeroIsTheMostLikelyAndOfEqualsTheLowerId) {
  const std::vector<float> equal{1, 3, 3, 2};
  EXPECT_EQ(tokens_of(likely_tokens(equal, {.temperature = 0})), (std::vector<int32_t>{1}));
  for (int64_t position = 0; position < 20; ++position) EXPECT_EQ(sample_token(equal, {.temperature = 0}, 1, 0, position), 1);
}

TEST(Sampling, TopKKeepsTheMostLikelyAndSharesOutTheRest) {
  const auto kept = likely_tokens(kLogits, {.top_k = 2});
  EXPECT_EQ(tokens_of(kept), (std::vector<int32_t>{0, 2}));
  EXPECT_NEAR(kept[0].probability, 2.0 / 3, 1e-7);
  EXPECT_EQ(likely_tokens(kLogits, {.top_k = 100}).size(), 4u);
}

TEST(Sampling, TopPKeepsTheFewestThatReachIt) {
  EXPECT_EQ(tokens_of(likely_tokens(kLogits, {.top_p = 0.4})), (std::vector<int32_t>{0}));
  EXPECT_EQ(tokens_of(likely_tokens(kLogits, {.top_p = 0.6})), (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(tokens_of(likely_tokens(kLogits, {.top_p = 0.8})), (std::vector<int32_t>{0, 2, 1}));
  EXPECT_EQ(tokens_of(likely_tokens(kLogits, {.top_p = 1e-12})), (std::vector<int32_t>{0}));
}

TEST(Sampling, TopPWorksOnWhatTopKLeft) {
  const auto kept = likely_tokens(kLogits, {.top_k = 2, .top_p = 0.65});  // 2/3 of what is left is enough
  EXPECT_EQ(tokens_of(kept), (std::vector<int32_t>{0}));
  EXPECT_DOUBLE_EQ(kept[0].probability, 1);
}

TEST(Sampling, ChooseFollowsTheRunningSum) {
  const std::vector<LikelyToken> list{{7, 0.5}, {8, 0.25}, {9, 0.25}};
  EXPECT_EQ(choose(list, 0), 7);
  EXPECT_EQ(choose(list, 0.4999), 7);
  EXPECT_EQ(choose(list, 0.5), 8);
  EXPECT_EQ(choose(list, 0.75), 9);
  EXPECT_EQ(choose(list, std::nextafter(1.0, 0.0)), 9);
  EXPECT_EQ(choose(std::vector<LikelyToken>{{7, 0.9}}, 0.99), 7) << "rounding must not fall off the end";
}

// The tolerance is five standard deviations of a binomial distribution with 40,000 draws.
TEST(Sampling, FrequenciesAreTheProbabilities) {
  std::vector<int> counts(4);
  const int draws = 40000;
  for (int i = 0; i < draws; ++i) ++counts[sample_token(kLogits, {}, 42, i % 4, i / 4)];
  const double expected[] = {0.5, 0.125, 0.25, 0.125};
  for (size_t t = 0; t < 4; ++t)
    EXPECT_NEAR(counts[t] / double{draws}, expected[t], 5 * std::sqrt(expected[t] * (1 - expected[t]) / draws)) << t;
}

TEST(Sampling, ADrawDependsOnSeedSequenceAndPositionAlone) {
  EXPECT_EQ(sampling_unit(1, 2, 3), sampling_unit(1, 2, 3));
  EXPECT_NE(sampling_unit(1, 2, 3), sampling_unit(2, 2, 3));
  EXPECT_NE(sampling_unit(1, 2, 3), sampling_unit(1, 3, 3));
  EXPECT_NE(sampling_unit(1, 2, 3), sampling_unit(1, 2, 4));
}

TEST(Sampling, ImpossibleTokensAreNeverChosenAndHugeLogitsDoNotOverflow) {
  const float none = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(tokens_of(likely_tokens(std::vector<float>{none, 1e30f, none, 1e30f}, {})), (std::vector<int32_t>{1, 3}));
  EXPECT_NEAR(likely_tokens(std::vector<float>{none, 1e30f, none, 1e30f}, {})[0].probability, 0.5, 1e-12);
  EXPECT_EQ(sample_token(std::vector<float>{5}, {}, 0, 0, 0), 0);
}

TEST(Sampling, DamagedLogitsAreAnError) {
  EXPECT_THROW(likely_tokens(std::vector<float>{0, NAN}, {}), NumericsError);
  EXPECT_THROW(likely_tokens(std::vector<float>{0, INFINITY}, {}), NumericsError);
  EXPECT_THROW(likely_tokens(std::vector<float>{-INFINITY, -INFINITY}, {}), NumericsError);
}

std::string message_of(const SamplingOptions& options) {
  try {
    check(options);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(Sampling, OptionsOutOfRangeAreRefused) {
  EXPECT_EQ(message_of({.temperature = -1}), "temperature: -1 is not accepted; use 0 (the most likely token) or more");
  EXPECT_EQ(message_of({.top_k = -2}), "top_k: -2 is not accepted; use 0 (all tokens) or more");
  EXPECT_EQ(message_of({.top_p = 0}), "top_p: 0 is not accepted; use more than 0 and at most 1");
  EXPECT_EQ(message_of({.top_p = 1.5}), "top_p: 1.5 is not accepted; use more than 0 and at most 1");
  EXPECT_EQ(message_of({}), "");
}

}  // namespace
}  // namespace trivet::data
