#include "autotune/tune/rank_devices.h"

#include <gtest/gtest.h>

namespace trivet::autotune {
namespace {

TEST(RankDevices, HostMemoryIsSharedByTheRanksOfAHostAndATwentiethIsInReserve) {
  const RankDevices devices = combine({{"a", "EPYC", 8000, true}, {"a", "EPYC", 8400, true}, {"b", "Xeon", 6000, true}});
  EXPECT_EQ(devices.memory_bytes, 3800);  // 0.95 x 8000 / 2
  EXPECT_EQ(devices.hardware, "2 x EPYC; 1 x Xeon");
  EXPECT_FALSE(devices.gpus);
}

TEST(RankDevices, EachRankHasAGpuOfItsOwn) {
  const RankDevices devices = combine({{"a", "H100", 80000, false}, {"a", "H100", 60000, false}});
  EXPECT_EQ(devices.memory_bytes, 57000);
  EXPECT_EQ(devices.hardware, "2 x H100");
  EXPECT_TRUE(devices.gpus);
}

}  // namespace
}  // namespace trivet::autotune
