#include "core/rising_number.h"

#include <gtest/gtest.h>

#include <limits>

namespace trivet {
namespace {

TEST(RisingNumber, FollowsItsFormula) {
  const RisingNumber even{.least = 10, .most = 50, .steps = 100, .multiple = 4};
  EXPECT_EQ(even.at(0), 8);
  EXPECT_EQ(even.at(5), 12);
  EXPECT_EQ(even.at(14), 12) << "15.6, down to a multiple of 4";
  EXPECT_EQ(even.at(15), 16);
  EXPECT_EQ(even.at(99), 48);
  EXPECT_EQ(even.at(100), 48);
  EXPECT_EQ(even.at(105), 50) << "52, and at most 50";
  EXPECT_EQ(even.at(int64_t{1} << 62), 50);
  EXPECT_EQ((RisingNumber{.least = 7, .most = 9, .steps = 1, .multiple = std::numeric_limits<int64_t>::max()}.at(5)), 0);
  const RisingNumber root{.least = 0, .most = 64, .steps = 16, .multiple = 1, .degree = 2};
  EXPECT_EQ(root.at(1), 16);
  EXPECT_EQ(root.at(4), 32);
  EXPECT_EQ(root.at(5), 35) << "35.8";
}

TEST(RisingNumber, StepsOfChangeAreThoseWithANewNumber) {
  const RisingNumber number{.least = 7, .most = 61, .steps = 37, .multiple = 3};
  const auto at = [&](int64_t step) { return number.at(step); };
  std::vector<int64_t> expected{2};
  for (int64_t step = 3; step < 100; ++step)
    if (at(step) != at(step - 1)) expected.push_back(step);
  EXPECT_EQ(steps_of_change(2, at), expected);
  EXPECT_EQ(steps_of_change(1000, at), std::vector<int64_t>{1000});
}

}  // namespace
}  // namespace trivet
