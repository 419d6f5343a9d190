#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "core/error.h"
#include "data/sample_order.h"

namespace trivet::data {
namespace {

std::vector<int64_t> epoch_of(const SampleOrder& order, int64_t epoch) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < order.samples(); ++i) samples.push_back(order.sample_of(epoch * order.samples() + i));
  return samples;
}

std::vector<int64_t> in_order(int64_t samples) {
  std::vector<int64_t> expected(samples);
  for (int64_t i = 0; i < samples; ++i) expected[i] = i;
  return expected;
}

class EpochOfSize : public testing::TestWithParam<int64_t> {};

TEST_P(EpochOfSize, HoldsEverySampleExactlyOnce) {
  const int64_t samples = GetParam();
  const SampleOrder order(samples, 1234, true);
  ASSERT_EQ(order.samples(), samples);
  for (int64_t epoch : {0, 1, 2, 1000}) {
    auto found = epoch_of(order, epoch);
    std::sort(found.begin(), found.end());
    EXPECT_EQ(found, in_order(samples)) << "epoch " << epoch;
  }
}

INSTANTIATE_TEST_SUITE_P(SampleOrder, EpochOfSize,
                         testing::Values(1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 64, 97, 127, 128, 255, 256, 257,
                                         1000, 1024, 4096, 7919, 15685, 65536, 65537));

TEST(SampleOrder, WithoutShuffleIsTheIdentityInEveryEpoch) {
  const SampleOrder order(10, 1234, false);
  EXPECT_EQ(epoch_of(order, 0), in_order(10));
  EXPECT_EQ(epoch_of(order, 3), in_order(10));
}

TEST(SampleOrder, EpochsAndSeedsDiffer) {
  const SampleOrder one(100, 1, true), two(100, 2, true);
  EXPECT_NE(epoch_of(one, 0), epoch_of(one, 1));
  EXPECT_NE(epoch_of(one, 0), epoch_of(two, 0));
  EXPECT_NE(epoch_of(one, 0), in_order(100));
  EXPECT_EQ(epoch_of(one, 5), epoch_of(SampleOrder(100, 1, true), 5));
}

// In a random permutation position and sample are independent: the mean of |sample - position| is n / 3, its deviation about
// n x 0.24 / sqrt(n).
TEST(SampleOrder, SpreadsSamplesEvenly) {
  const int64_t n = 10000;
  for (uint64_t seed : {1, 2, 3, 4}) {
    const auto samples = epoch_of(SampleOrder(n, seed, true), 0);
    double distance = 0;
    for (int64_t i = 0; i < n; ++i) distance += static_cast<double>(std::abs(samples[i] - i));
    EXPECT_NEAR(distance / static_cast<double>(n) / static_cast<double>(n), 1.0 / 3, 5 * 0.24 / 100);
  }
}

// Over many epochs each of the 6 orders of 3 samples comes up about equally often (chi-square with 5 degrees, 0.001: 20.5).
TEST(SampleOrder, AllOrdersOfThreeSamplesAreAboutEquallyLikely) {
  const SampleOrder order(3, 7, true);
  std::map<std::vector<int64_t>, int> counts;
  const int epochs = 6000;
  for (int epoch = 0; epoch < epochs; ++epoch) ++counts[epoch_of(order, epoch)];
  ASSERT_EQ(counts.size(), 6u);
  double chi_square = 0;
  for (const auto& [sequence, count] : counts) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi_square, 20.5);
}

// The order is frozen, because a change would silently change every resumed run. That includes runs in later epochs and runs
// with many samples.
TEST(SampleOrder, TheOrderItselfDoesNotChange) {
  const SampleOrder order(10, 1234, true);
  EXPECT_EQ(epoch_of(order, 0), (std::vector<int64_t>{4, 9, 0, 7, 2, 5, 6, 3, 1, 8}));
  EXPECT_EQ(epoch_of(order, 1), (std::vector<int64_t>{6, 8, 9, 0, 1, 3, 2, 4, 5, 7}));
  EXPECT_EQ(epoch_of(order, 3), (std::vector<int64_t>{1, 6, 3, 7, 4, 0, 5, 2, 9, 8}));
  const SampleOrder many(100'000, 1234, true);
  const std::map<int64_t, int64_t> samples{{0, 99'831}, {1, 17'041}, {99'999, 42'213}, {100'000, 75'442}, {250'000, 67'031}};
  for (const auto& [number, sample] : samples) EXPECT_EQ(many.sample_of(number), sample) << number;
}

}  // namespace
}  // namespace trivet::data
