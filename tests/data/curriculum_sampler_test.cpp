// Tests what a curriculum admits, by closed formulas, and that it reads all that is admitted equally often.
#include "data/curriculum_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include "data/difficulty.h"
#include "engine/config/config.h"
#include "engine/config/curriculum.h"
#include "tests/data/expect_error.h"
#include "trainer/admission.h"

namespace trivet::data {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

// Rows of four tokens from 0 to 7, and how many of the targets count, from the first on; the row after a pair's first is its
// second one.
class GivenRows final : public SampleSource {
 public:
  struct Row {
    std::vector<int32_t> tokens;
    size_t counted;
  };
  explicit GivenRows(std::vector<Row> rows, bool pairs = false)
      : rows_(std::move(rows)), spec_{.input = {4}, .targets = {4}, .input_values = 8, .classes = 8, .pairs = pairs} {}
  const SampleSpec& spec() const override { return spec_; }
  int64_t samples() const override { return static_cast<int64_t>(rows_.size()) / spec_.rows(); }
  void fill(int64_t sample, int64_t, std::span<std::byte> input, std::span<int32_t> targets) const override {
    std::ranges::fill(targets, -1);
    for (int64_t r = 0; r < spec_.rows(); ++r) {
      const Row& row = rows_[sample * spec_.rows() + r];
      std::memcpy(input.data() + r * 16, row.tokens.data(), 16);
      std::ranges::fill(targets.subspan(r * 4, row.counted), 1);
      if (row.counted > 1) targets[r * 4] = -1;  // one in the middle that does not count changes nothing
    }
  }
  std::string digest() const override { return "given"; }

 private:
  std::vector<Row> rows_;
  SampleSpec spec_;
};

TEST(Difficulty, LogarithmsAreThoseOfTheFormula) {
  EXPECT_EQ(fixed_rarity(5, 5), 0);
  EXPECT_EQ(fixed_rarity(1, 2), 726817) << "ln 2 = 0.693147 in units of 2^-20, rounded down";
  EXPECT_EQ(fixed_rarity(3, 3 * 1024), 7268174);
  for (const uint64_t total : {7ull, 1000ull, 123'456'789ull, 9'000'000'000'000ull})
    for (const uint64_t count : {1ull, 2ull, 3ull, 5ull, 6ull, 7ull}) {
      const double exact = -std::log(static_cast<double>(count) / static_cast<double>(total)) * 0x1p20;
      EXPECT_NEAR(static_cast<double>(fixed_rarity(count, total)), exact, 2.5) << "two logarithms and a product are rounded";
    }
}

// Token 0 is 6 of 12 tokens that count, token 1 is 3, token 2 is 2 and token 3 is 1.
TEST(Difficulty, CountsTokensUpToTheLastTarget) {
  const GivenRows rows({{{0, 0, 1, 2}, 4}, {{0, 1, 0, 0}, 3}, {{3, 7, 7, 7}, 1}, {{0, 1, 2, 0}, 4}, {{5, 5, 5, 5}, 0}});
  EXPECT_THAT(lengths_of(rows), ElementsAre(4, 3, 1, 4, 0));
  const auto rarity = [](int count) { return -std::log(count / 12.0); };
  EXPECT_THAT(rarities_of(rows),
              ElementsAre(std::floor(2 * rarity(6) + rarity(3) + rarity(2)), std::floor(2 * rarity(6) + rarity(3)),
                          std::floor(rarity(1)), std::floor(2 * rarity(6) + rarity(3) + rarity(2)), 0));
}

TEST(Difficulty, OfAPairIsThatOfBothAnswers) {
  const GivenRows pairs({{{0, 1, 2, 3}, 4}, {{0, 1, 3, 3}, 2}, {{1, 1, 1, 1}, 1}, {{0, 2, 2, 2}, 1}}, true);
  EXPECT_THAT(lengths_of(pairs), ElementsAre(6, 2));
  const auto rarity = [](int count) { return -std::log(count / 8.0); };
  EXPECT_THAT(rarities_of(pairs),
              ElementsAre(std::floor(2 * rarity(3) + 2 * rarity(3) + 2 * rarity(1)), std::floor(rarity(3) + rarity(3))));
}

SampleMetric rising(DifficultyType type, int64_t least, int64_t most, int64_t steps) {
  return {.type = type,
          .schedule = {
              .enabled = true, .min_difficulty = least, .max_difficulty = most, .total_steps = steps, .difficulty_step = 1}};
}

// Those that are admitted in a step, counted from 0.
std::set<int64_t> admitted_in(const Admissions& admissions, int64_t step) {
  int64_t samples = 0;
  for (const AdmittingStep& admitting : admissions.steps)
    if (admitting.step <= step) samples = admitting.samples;
  return {admissions.samples.begin(), admissions.samples.begin() + samples};
}

std::set<int64_t> samples_where(size_t count, const std::function<bool(int64_t)>& condition) {
  std::set<int64_t> samples;
  for (int64_t sample = 0; sample < static_cast<int64_t>(count); ++sample)
    if (condition(sample)) samples.insert(sample);
  return samples;
}

const std::vector<int64_t> kLengths{9, 2, 5, 5, 14, 3, 2, 30, 7, 5, 11}, kRarities{1, 8, 6, 2, 2, 9, 3, 4, 5, 7, 0};

TEST(Admissions, ByValueAreThoseOfTheFormula) {
  const SampleMetric metric = rising(DifficultyType::Value, 3, 14, 20);
  const Admissions all = trainer::admissions({{metric, kLengths}});
  EXPECT_EQ(all.all, 11);
  ASSERT_FALSE(all.steps.empty());
  EXPECT_EQ(all.steps.front(), (AdmittingStep{0, 3})) << "2, 2 and 3";
  EXPECT_EQ(all.steps.back(), (AdmittingStep{19, 10})) << "30 is more than the last difficulty";
  for (int64_t step = 0; step < 25; ++step) {
    const int64_t difficulty = std::min<int64_t>(14, 3 + (step + 1) * 11 / 20);
    EXPECT_EQ(admitted_in(all, step), samples_where(11, [&](int64_t sample) { return kLengths[sample] <= difficulty; }))
        << step;
  }
}

TEST(Admissions, ByPercentileAreTheEasiestOnes) {
  const SampleMetric metric = rising(DifficultyType::Percentile, 10, 100, 16);
  const Admissions all = trainer::admissions({{metric, kLengths}});
  const std::vector<int64_t> easiest{1, 6, 5, 2, 3, 9, 8, 0, 10, 4, 7};  // those of 2 and of 5 tokens in their order
  for (int64_t step = 0; step < 25; ++step) {
    const int64_t percentile = std::min<int64_t>(100, 10 + (step + 1) * 90 / 16), count = 11 * percentile / 100;
    EXPECT_EQ(admitted_in(all, step), std::set<int64_t>(easiest.begin(), easiest.begin() + count)) << step;
  }
  EXPECT_EQ(all.steps.back(), (AdmittingStep{15, 11}));
}

TEST(Admissions, OfTwoMetricsAreThoseOfBoth) {
  const SampleMetric length = rising(DifficultyType::Value, 3, 30, 20), rarity = rising(DifficultyType::Percentile, 5, 10, 15);
  const Admissions both = trainer::admissions({{length, kLengths}, {rarity, kRarities}});
  const Admissions by_length = trainer::admissions({{length, kLengths}}),
                   by_rarity = trainer::admissions({{rarity, kRarities}});
  for (int64_t step = 0; step < 25; ++step) {
    std::set<int64_t> expected;
    const auto a = admitted_in(by_length, step), b = admitted_in(by_rarity, step);
    std::ranges::set_intersection(a, b, std::inserter(expected, expected.end()));
    EXPECT_EQ(admitted_in(both, step), expected) << step;
  }
  EXPECT_EQ(both.steps.front(), (AdmittingStep{0, 1})) << "only sample 6 is short and among the five most common";
  EXPECT_EQ(both.samples.size(), 11u);
}

// The order of the samples is that of their admission.
const std::vector<int64_t> kAdmitted{4, 11, 17, 2, 9, 30, 31, 5, 8, 21, 22, 0, 7, 40, 41};
const std::vector<AdmittedOrder::Stage> kStages{{0, 5}, {8, 7}, {9, 8}, {40, 12}, {41, 13}, {64, 15}};

int64_t admitted_at(int64_t place) {
  int64_t count = 0;
  for (const auto& stage : kStages)
    if (stage.first_place <= place) count = stage.admitted;
  return count;
}

TEST(AdmittedOrder, ARoundReadsAllThatWereAdmittedWhenItBeganOnceAndNoSampleTwice) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    const AdmittedOrder order(kAdmitted, kStages, seed, true);
    std::map<int64_t, std::vector<int64_t>> rounds;
    std::map<int64_t, int64_t> first_places;
    int64_t last_round = 0;
    for (int64_t place = 0; place < 200; ++place) {
      const auto [sample, round] = order.at(place);
      EXPECT_TRUE(round == last_round || round == last_round + 1);
      last_round = round;
      first_places.emplace(round, place);
      rounds[round].push_back(sample);
      const auto end = kAdmitted.begin() + admitted_at(place);
      EXPECT_NE(std::find(kAdmitted.begin(), end, sample), end) << sample << " is not admitted at " << place;
    }
    rounds.erase(last_round);
    for (const auto& [round, samples] : rounds) {
      const std::set<int64_t> read(samples.begin(), samples.end());
      EXPECT_EQ(read.size(), samples.size()) << "round " << round;
      const int64_t at_first = admitted_at(first_places.at(round));
      EXPECT_TRUE(std::ranges::all_of(kAdmitted.begin(), kAdmitted.begin() + at_first,
                                      [&](int64_t sample) { return read.contains(sample); }))
          << "round " << round;
    }
    EXPECT_EQ(rounds.rbegin()->second.size(), 15u);
    EXPECT_NE(rounds.at(last_round - 1), rounds.at(last_round - 2)) << "rounds are shuffled";
  }
}

TEST(AdmittedOrder, RoundsDuringTheCurriculumHaveOrdersOfTheirOwn) {
  const AdmittedOrder order(kAdmitted, {{0, 10}, {1000, 15}}, 3, true);
  std::set<std::vector<int64_t>> orders;
  for (int64_t round = 0; round < 100; ++round) {
    std::vector<int64_t> samples;
    for (int64_t place = 0; place < 10; ++place) samples.push_back(order.at(round * 10 + place).sample);
    orders.insert(samples);
  }
  EXPECT_GT(orders.size(), 98u) << "100 of 10! orders";
}

// Without a shuffle, a round goes through the numbers: what is admitted behind it waits for the next round.
TEST(AdmittedOrder, WithoutAShuffleIsTheOrderOfTheNumbers) {
  const AdmittedOrder order(kAdmitted, kStages, 1, false);
  std::vector<int64_t> read, expected;
  for (int64_t place = 0, last = -1; place < 120; ++place) {
    read.push_back(order.at(place).sample);
    const auto next = [&](int64_t after) {
      int64_t least = 1000;
      for (int64_t i = 0; i < admitted_at(place); ++i)
        if (kAdmitted[i] > after) least = std::min(least, kAdmitted[i]);
      return least;
    };
    last = next(last) < 1000 ? next(last) : next(-1);
    expected.push_back(last);
  }
  EXPECT_THAT(read, ElementsAreArray(expected));
}

TEST(AdmittedOrder, IsTheSameFromEveryPlaceOn) {
  const AdmittedOrder whole(kAdmitted, kStages, 7, true);
  std::vector<std::pair<int64_t, int64_t>> all;
  for (int64_t place = 0; place < 120; ++place) all.emplace_back(whole.at(place).sample, whole.at(place).round);
  const auto expect_at = [&](const AdmittedOrder& order, int64_t place) {
    const auto choice = order.at(place);
    EXPECT_EQ(std::make_pair(choice.sample, choice.round), all[place]) << place;
  };
  for (const int64_t from : {1, 8, 39, 40, 63, 64, 65, 100}) {
    const AdmittedOrder resumed(kAdmitted, kStages, 7, true);
    for (int64_t place = from; place < 120; ++place) expect_at(resumed, place);
    expect_at(resumed, 0);  // a replay of an earlier step
    expect_at(resumed, 119);
    expect_at(resumed, from / 2);
  }
  EXPECT_NE(
      AdmittedOrder(kAdmitted, kStages, 8, true).at(0).sample * 1000 + AdmittedOrder(kAdmitted, kStages, 8, true).at(1).sample,
      all[0].first * 1000 + all[1].first)
      << "another seed, another order";
}

// 20 samples, and 20 more that are admitted in the middle of the second round. From then on all 40 are read equally often.
TEST(AdmittedOrder, AllAdmittedSamplesAreEquallyLikely) {
  constexpr int64_t kSeeds = 4000, kFirst = 30, kEnd = 70;
  std::vector<int64_t> samples(40);
  for (int64_t i = 0; i < 40; ++i) samples[i] = i;
  std::vector<int64_t> counts(40);
  for (int64_t seed = 0; seed < kSeeds; ++seed) {
    const AdmittedOrder order(samples, {{0, 20}, {kFirst, 40}}, static_cast<uint64_t>(seed), true);
    for (int64_t place = kFirst; place < kEnd; ++place) ++counts[order.at(place).sample];
  }
  // One read of each in 40 places, so 4000 of each. Five standard deviations of 4000 draws are 8 % at most, and a new sample is
  // 1/20 more likely in the rest of the round that it joins, a quarter of these places.
  for (int64_t i = 0; i < 40; ++i) EXPECT_NEAR(static_cast<double>(counts[i]), kSeeds, 0.08 * kSeeds) << i;
}

TEST(AdmittedOrder, NeedsASampleForTheFirstPlace) {
  EXPECT_THROW(AdmittedOrder({1}, {{1, 1}}, 1, true), std::logic_error);
  EXPECT_THROW(AdmittedOrder({}, {{0, 0}}, 1, true), std::logic_error);
  EXPECT_THROW(AdmittedOrder({1, 2}, {{0, 1}}, 1, true), std::logic_error);
  EXPECT_THROW(AdmittedOrder({}, {}, 1, true), std::logic_error);
}

TEST(CurriculumSampler, GivesEveryLayoutTheSamePlaces) {
  const Admissions admitted{.samples = kAdmitted, .steps = {{0, 5}, {2, 7}, {3, 15}}, .all = 42};
  const BatchLayout one{.micro_batch = 2, .accumulation = 4},
      two{.micro_batch = 2, .accumulation = 2, .data_size = 2, .data_rank = 1};
  const CurriculumSampler sampler(admitted, 5, true, one), other(admitted, 5, true, two);
  const AdmittedOrder order(kAdmitted, {{0, 5}, {16, 7}, {24, 15}}, 5, true);
  int64_t place = 0;
  for (int64_t step = 0; step < 6; ++step)
    for (int64_t microbatch = 0; microbatch < 4; ++microbatch)
      for (int64_t row = 0; row < 2; ++row) {
        const Visit visit = sampler.visit(step, microbatch, row), same = other.visit(step, microbatch, row);
        EXPECT_EQ(visit.sample, order.at(place).sample);
        EXPECT_EQ(visit.epoch, order.at(place++).round);
        EXPECT_EQ(visit.sample, same.sample);
      }
  EXPECT_EQ(sampler.steps_of(1), 6) << "42 samples in steps of 8";
  EXPECT_EQ(sampler.steps_of(2.5), 14);
  EXPECT_EQ(sampler.epochs_in(5), 0);
  EXPECT_EQ(sampler.epochs_in(11), 2);
}

Config choosing(const SampleMetric& length, const SampleMetric& rarity) {
  Config config;
  config.source = "a.json";
  config.sample_curriculum = {.enabled = true, .length = length, .rarity = rarity};
  return config;
}

TEST(Admit, SaysWhyTheFirstStepHasNoSample) {
  const GivenRows rows({{{0, 0, 1, 2}, 4}, {{0, 1, 0, 0}, 3}, {{0, 1, 2, 0}, 4}});
  const auto admit_by = [&](const SampleMetric& length, const SampleMetric& rarity) {
    return [&rows, config = choosing(length, rarity)] { trainer::admit(config, rows); };
  };
  const std::string section = "a.json: data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.";
  const SampleMetric none;
  expect_error(
      admit_by(rising(DifficultyType::Value, 2, 4, 10), none), ExitCode::Usage,
      section +
          "seqlen.min_difficulty: 2 leaves no sample for step 1: its difficulty is 2, and those of the 3 samples are from "
          "3 to 4; use at least 3");
  SampleMetric by_twos = rising(DifficultyType::Value, 2, 4, 10);
  by_twos.schedule.difficulty_step = 2;
  expect_error(
      admit_by(by_twos, none), ExitCode::Usage,
      section +
          "seqlen.min_difficulty: 2 leaves no sample for step 1: its difficulty is 2, and those of the 3 samples are from "
          "3 to 4; use at least 4");
  SampleMetric by_list = rising(DifficultyType::Value, 1, 2, 10);
  by_list.schedule.schedule = DifficultySchedule::FixedDiscrete;
  by_list.schedule.difficulties = {2}, by_list.schedule.last_steps = {};
  expect_error(
      admit_by(by_list, none), ExitCode::Usage,
      section +
          "seqlen.schedule_config.difficulty: its first number leaves no sample for step 1: its difficulty is 2, and "
          "those of the 3 samples are from 3 to 4; use at least 3, and a max_difficulty that is not less than it, as 2 "
          "is");
  expect_error(admit_by(none, rising(DifficultyType::Percentile, 1, 100, 1000)), ExitCode::Usage,
               section +
                   "vocabularyrarity.min_difficulty: 1 leaves no sample for step 1: percentile 1 of 100 is less than one of "
                   "3 samples; use at least 34");
  expect_error(admit_by(rising(DifficultyType::Value, 3, 4, 10), rising(DifficultyType::Value, 1, 9, 100)), ExitCode::Usage,
               section +
                   "vocabularyrarity.min_difficulty: 1 leaves no sample for step 1, together with 3 of seqlen: the 3 samples "
                   "have a seqlen of 3 to 4 and a vocabularyrarity of 2 to 4; use larger ones");
  EXPECT_EQ(trainer::admit(Config{}, rows), nullptr);
  const Config works = choosing(rising(DifficultyType::Value, 3, 4, 10), none);
  EXPECT_EQ(trainer::describe_admissions(works, *trainer::admit(works, rows)),
            "seqlen at most 3 in step 1, 4 from step 10 on: 1 of 3 samples in step 1, all from step 10 on");
  const Config never_all = choosing(rising(DifficultyType::Value, 3, 3, 10), none);
  EXPECT_EQ(trainer::describe_admissions(never_all, *trainer::admit(never_all, rows)),
            "seqlen at most 3 in step 1: 1 of 3 samples in step 1");
}

}  // namespace
}  // namespace trivet::data
