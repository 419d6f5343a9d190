#include "cli/launch/running_time.h"

#include <gtest/gtest.h>

namespace trivet::cli {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(RunningTime, LeavesOutAWaitInWhichTheProcessWasStopped) {
  const RunningTime::Clock::time_point start{};
  RunningTime running(milliseconds(2000), start);
  EXPECT_EQ(running.so_far(), milliseconds(0));
  EXPECT_EQ(running.look(start + milliseconds(700)), milliseconds(700));
  EXPECT_EQ(running.look(start + milliseconds(2700)), milliseconds(2700));
  EXPECT_EQ(running.look(start + milliseconds(4701)), milliseconds(2700));
  EXPECT_EQ(running.look(start + hours(1)), milliseconds(2700));
  EXPECT_EQ(running.look(start + hours(1) + milliseconds(5)), milliseconds(2705));
  EXPECT_EQ(running.so_far(), milliseconds(2705));
}

}  // namespace
}  // namespace trivet::cli
