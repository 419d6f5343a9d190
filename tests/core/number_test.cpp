#include "core/number.h"

#include <gtest/gtest.h>

namespace trivet {
namespace {

TEST(Number, AQuotientKeepsWhereTheDeviceHasTheNumber) {
  const double on_device = 0;
  const Number scale(1024, &on_device), share = scale / 3;
  EXPECT_EQ(share.value(), 1024.0 / 3);
  EXPECT_EQ(share.on_device, &on_device);
  EXPECT_EQ(share.base, 1024);
}

// A second divisor would replace the first.
TEST(Number, IsDividedOnce) {
  EXPECT_THROW(Number(1024) / 3 / 5, std::logic_error);
  EXPECT_EQ((Number(1024) / 1 / 5).value(), 1024.0 / 5);
}

}  // namespace
}  // namespace trivet
