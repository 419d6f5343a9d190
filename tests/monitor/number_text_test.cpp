#include "report/monitor/number_text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trivet::monitor {
namespace {

TEST(NumberText, CommasStandBeforeEveryThirdDigit) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(with_commas(-123), "-123");
}

TEST(NumberText, DurationsGrowWithTheirSize) {
  EXPECT_EQ(duration(0.4), "0:00");
  EXPECT_EQ(duration(85), "1:25");
  EXPECT_EQ(duration(3725), "1:02:05");
  EXPECT_EQ(duration(90061), "1d 1:01:01");
  EXPECT_EQ(duration(-3), "0:00");
}

TEST(NumberText, MemoryHasTheUnitThatFits) {
  EXPECT_EQ(memory_size(512 << 10), "512 KiB");
  EXPECT_EQ(memory_size(0), "0 KiB");
  EXPECT_EQ(memory_size(1 << 20), "1 MiB");
  EXPECT_EQ(memory_size(int64_t{1} << 30), "1.00 GiB");
  EXPECT_EQ(memory_size(17 << 20), "17 MiB");
  EXPECT_EQ(memory_size(2'000'000'000), "1.86 GiB");
}

// The right-hand sides are what Python 3 prints.
TEST(NumberText, FloatsReadAsPythonWritesThem) {
  EXPECT_EQ(python_float(0.001), "0.001");
  EXPECT_EQ(python_float(0.0009), "0.0009");
  EXPECT_EQ(python_float(1), "1.0");
  EXPECT_EQ(python_float(-0.0), "-0.0");
  EXPECT_EQ(python_float(65536), "65536.0");
  EXPECT_EQ(python_float(0.0001), "0.0001");
  EXPECT_EQ(python_float(0.00001), "1e-05");
  EXPECT_EQ(python_float(1e16), "1e+16");
  EXPECT_EQ(python_float(123456789012345680.0), "1.2345678901234568e+17");
  EXPECT_EQ(python_float(1e15), "1000000000000000.0");
  EXPECT_EQ(python_float(0.1 + 0.2), "0.30000000000000004");
  EXPECT_EQ(python_float(INFINITY), "inf");
}

TEST(NumberText, JsonHasNoNanAndNoInfinity) {
  EXPECT_EQ(json_number(0.25), "0.25");
  EXPECT_EQ(json_number(NAN), "null");
  EXPECT_EQ(json_number(-INFINITY), "null");
}

}  // namespace
}  // namespace trivet::monitor
