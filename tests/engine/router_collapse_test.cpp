#include "trainer/router_collapse.h"

#include <gmock/gmock.h>

namespace trivet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const ExpertLoad kGood{"blocks.1", {20, 0, 12, 8}}, kBad{"blocks.1", {39, 0, 0, 1}};

TEST(RouterCollapse, IsSaidOnceAfterTenStepsInARow) {
  RouterCollapse collapse;
  for (int step = 1; step < 10; ++step) EXPECT_THAT(collapse.look_at(step, {kBad}), IsEmpty());
  EXPECT_THAT(collapse.look_at(10, {{"blocks.0", {10, 10, 10, 10}}, kBad}),
              ElementsAre(HasSubstr("in blocks.1, 2 of 4 experts have computed next to nothing for 10 steps, until step 10")));
  for (int step = 11; step < 40; ++step) EXPECT_THAT(collapse.look_at(step, {kBad}), IsEmpty());
}

TEST(RouterCollapse, AGoodStepBeginsAnewAndAStepWithFewTokensSaysNothing) {
  RouterCollapse collapse;
  const auto steps = [&](int count, const ExpertLoad& load) {
    size_t texts = 0;
    for (int step = 0; step < count; ++step) texts += collapse.look_at(step, {load}).size();
    return texts;
  };
  EXPECT_EQ(steps(9, kBad), 0);
  EXPECT_EQ(steps(50, {"blocks.1", {31, 0, 0, 0}}), 0);
  EXPECT_EQ(steps(1, kGood), 0);
  EXPECT_EQ(steps(9, kBad), 0);
  EXPECT_EQ(steps(1, kBad), 1);
  EXPECT_EQ(steps(1, kGood), 0);
  EXPECT_EQ(steps(10, kBad), 1);
}

}  // namespace
}  // namespace trivet
