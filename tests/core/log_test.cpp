#include "core/log.h"

#include <gtest/gtest.h>

namespace trivet {
namespace {

std::string written(const Log& log) {
  ::testing::internal::CaptureStderr();
  log.info("hello");
  log.warning("careful");
  log.error("wrong");
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, WritesALineFromItsLeastLevelUp) {
  EXPECT_EQ(written(Log(3)), "trivet: rank 3: hello\ntrivet: rank 3: warning: careful\ntrivet: rank 3: error: wrong\n");
  EXPECT_EQ(written(Log(0, LogLevel::Warning)), "trivet: rank 0: warning: careful\ntrivet: rank 0: error: wrong\n");
  EXPECT_EQ(written(Log(0, LogLevel::Error)), "trivet: rank 0: error: wrong\n");
}

}  // namespace
}  // namespace trivet
