#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trivet {
namespace {

float rounded(float value) { return static_cast<float>(bfloat16(value)); }

TEST(BFloat16, RoundsToNearestAndTiesToEven) {
  EXPECT_EQ(rounded(1.0f), 1.0f);
  EXPECT_EQ(rounded(1.0f + 0x1p-8f), 1.0f);
  EXPECT_EQ(rounded(1.0f + 0x1p-8f + 0x1p-20f), 1.0f + 0x1p-7f);
  EXPECT_EQ(rounded(1.0f + 3 * 0x1p-8f), 1.0f + 0x1p-6f);
  EXPECT_EQ(rounded(-1.0f - 0x1p-8f), -1.0f);
}

TEST(BFloat16, KeepsWhatIsNotFinite) {
  EXPECT_EQ(rounded(INFINITY), INFINITY);
  EXPECT_EQ(rounded(-INFINITY), -INFINITY);
  EXPECT_TRUE(std::isnan(rounded(NAN)));
  EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(0x7f800001u)))) << "a NaN whose upper 16 bits are those of infinity";
  EXPECT_EQ(rounded(3.4e38f), INFINITY);
}

}  // namespace
}  // namespace trivet
