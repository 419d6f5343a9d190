// The cost models of other planners, checked against their published figures.
#include "autotune/peer_cost_models.h"

#include <gtest/gtest.h>

namespace trivet::autotune {
namespace {

constexpr Link kUnit{.alpha = 1, .beta = 0.5};

TEST(PeerCostModels, CollectivesOfAlpa) {
  EXPECT_DOUBLE_EQ(alpa_all_gather(4, 32, kUnit), 1 + 12 + 0.1);
  EXPECT_DOUBLE_EQ(alpa_all_reduce(4, 32, kUnit), 1 + 24 + 0.01);
  EXPECT_DOUBLE_EQ(alpa_reduce_scatter(4, 32, kUnit), 1 + 12 + 0.001);
  EXPECT_DOUBLE_EQ(alpa_all_to_all(4, 32, kUnit), 1 + 3.0 / 16 * 32 * 0.5 * 2 + 0.001);
}

TEST(PeerCostModels, MessagesAndStatesOfGalvatron) {
  EXPECT_DOUBLE_EQ(galvatron_data_message(8, 800, false), 1400);
  EXPECT_DOUBLE_EQ(galvatron_data_message(8, 800, true), 700);
  EXPECT_DOUBLE_EQ(galvatron_backward_seconds(3, false), 6);
  EXPECT_DOUBLE_EQ(galvatron_backward_seconds(3, true), 9);
  EXPECT_DOUBLE_EQ(galvatron_backward_seconds(3, true, 2.5), 10.5);
  EXPECT_DOUBLE_EQ(galvatron_state_share(2, 8, false), 7.0 / 8 * 0.128 + 0.125);
  EXPECT_DOUBLE_EQ(galvatron_state_share(3, 8, false), 0.128);
  EXPECT_DOUBLE_EQ(galvatron_state_share(3, 8, true), 0.16);
  EXPECT_THROW(galvatron_state_share(1, 8, false), std::logic_error);
}

// A simulated clock: both run slowed down until one is done, then the other runs alone.
double simulated(const Beside& work) {
  double compute = work.compute, communication = work.communication, clock = 0;
  for (constexpr double kTick = 1e-4; compute > 0 || communication > 0; clock += kTick) {
    const bool both = compute > 0 && communication > 0;
    compute -= kTick / (both ? work.compute_slowdown : 1);
    communication -= kTick / (both ? work.communication_slowdown : 1);
  }
  return clock;
}

TEST(PeerCostModels, OverlapOfGalvatronSlowsBoth) {
  for (const Beside& work : {Beside{10, 4, 1.1, 1.3}, Beside{4, 10, 1.1, 1.3}, Beside{5, 5, 1.2, 1.2}, Beside{3, 0, 1.3, 1.3}})
    EXPECT_NEAR(galvatron_overlapped_seconds(work), simulated(work), 5e-4);  // a few ticks
  EXPECT_DOUBLE_EQ(galvatron_overlapped_seconds({10, 4, 1, 1}), 10);
  EXPECT_DOUBLE_EQ(galvatron_overlapped_seconds({10, 10, 1.3, 1.3}), 13);
}

// Three passes of 80 B parameters in 16 bits take 11 s at 42.5 GB/s and 56 s at 8.5 GB/s. A step of 4 M tokens with
// recomputation, on 512 A100 at half their rate, computes for 34 s: the second network is too slow.
TEST(PeerCostModels, FeasibilityOfZeroOnANetwork) {
  EXPECT_NEAR(zero_communication_seconds(80e9, 2, 3, 42.5e9), 11.3, 0.05);
  EXPECT_NEAR(zero_communication_seconds(80e9, 2, 3, 8.5e9), 56.5, 0.05);
  EXPECT_NEAR(zero_compute_seconds(80e9, 2048.0 * 2048, 4, 512 * 156e12), 33.6, 0.05);
}

// With 8 GPUs in a node each sends 9/8 instead of 14/8 of the bytes, so the measured bus bandwidth seems higher than the
// link's.
TEST(PeerCostModels, AddingInTheSwitchSendsLess) {
  const Link link{.beta = 1 / 450e9};
  EXPECT_DOUBLE_EQ(in_switch_all_reduce(8, 8e9, {.alpha = 1, .beta = 1e-9}), 2 + 9);
  EXPECT_DOUBLE_EQ(ring_all_reduce(8, 1e9, link) / in_switch_all_reduce(8, 1e9, link), 14.0 / 9);
  EXPECT_EQ(in_switch_all_reduce(1, 1e9, link), 0);
}

}  // namespace
}  // namespace trivet::autotune
