#include "autotune/collective_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace trivet::autotune {
namespace {

constexpr LinkRates kLink{.alpha = 5e-6, .beta = 1 / 25e9, .gamma = 1 / 400e9};

// n ranks form a ring. In each step every rank passes on one piece of S / n bytes, in lock step. The clock adds up step by step
// what the formula sums in closed form.
double simulated_ring(int64_t ranks, double bytes, const LinkRates& link, bool reduces, bool gathers) {
  double clock = 0;
  const double piece = bytes / static_cast<double>(ranks);
  for (int64_t step = 1; reduces && step < ranks; ++step) clock += link.alpha + piece * (link.beta + link.gamma);
  for (int64_t step = 1; gathers && step < ranks; ++step) clock += link.alpha + piece * link.beta;
  return clock;
}

TEST(CollectiveCost, RingsAreTheSumOfTheirSteps) {
  for (const int64_t n : {1, 2, 3, 8, 1024})
    for (const double bytes : {0.0, 4.0, 1e6, 1e9}) {
      EXPECT_NEAR(ring_all_reduce(n, bytes, kLink), simulated_ring(n, bytes, kLink, true, true),
                  1e-12 + 1e-9 * bytes * kLink.beta);
      EXPECT_NEAR(ring_all_gather(n, bytes, kLink), simulated_ring(n, bytes, kLink, false, true),
                  1e-12 + 1e-9 * bytes * kLink.beta);
      EXPECT_NEAR(ring_reduce_scatter(n, bytes, kLink), simulated_ring(n, bytes, kLink, true, false),
                  1e-12 + 1e-9 * bytes * kLink.beta);
    }
}

// The expected values are for alpha 1, beta 1, gamma 0.5, 16 ranks and 16 bytes.
TEST(CollectiveCost, FollowsTheFormulas) {
  const LinkRates unit{.alpha = 1, .beta = 1, .gamma = 0.5};
  EXPECT_DOUBLE_EQ(ring_all_reduce(16, 16, unit), 30 + 30 + 7.5);
  EXPECT_DOUBLE_EQ(pairwise_all_to_all(16, 16, unit), 15 + 15);
  for (const auto& cost : {ring_all_reduce, ring_all_gather, ring_reduce_scatter, pairwise_all_to_all})
    EXPECT_EQ(cost(1, 1e6, kLink), 0);
}

TEST(CollectiveCost, TwoLevelsSendOneNodesShareOutside) {
  const LinkRates free{}, byte{.beta = 1};
  const Nodes outside{.inner = 8, .nodes = 4, .inside = free, .outside = byte};
  EXPECT_DOUBLE_EQ(two_level_all_reduce(outside, 64), 2 * 3.0 / 4 * 64 / 8);
  EXPECT_DOUBLE_EQ(two_level_all_gather(outside, 64), 3.0 / 4 * 64 / 8);
  const Nodes inside{.inner = 8, .nodes = 4, .inside = byte, .outside = free};
  EXPECT_DOUBLE_EQ(two_level_all_reduce(inside, 64), 2 * 7.0 / 8 * 64);
  EXPECT_DOUBLE_EQ(two_level_reduce_scatter(inside, 64), 7.0 / 8 * 64);
  // One node, or nodes of one rank, cost as much as the flat ring.
  EXPECT_DOUBLE_EQ(two_level_all_reduce({.inner = 8, .nodes = 1, .inside = kLink}, 1e6), ring_all_reduce(8, 1e6, kLink));
  EXPECT_DOUBLE_EQ(two_level_all_reduce({.inner = 1, .nodes = 8, .outside = kLink}, 1e6), ring_all_reduce(8, 1e6, kLink));
}

}  // namespace
}  // namespace trivet::autotune
