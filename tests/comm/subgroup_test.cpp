// Tests groups of some of the ranks: which ranks they may have, that all ranks agree on them, and how their ranks are named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/stream.h"
#include "tests/comm/ranks.h"

namespace trivet::comm {
namespace {

using testing::HasSubstr;

TEST(Subgroup, HasEachRankOnceInAscendingOrder) {
  const auto group = make_meta_group(1, 3, "world");
  for (const std::vector<int>& ranks : {std::vector<int>{}, {2, 1}, {1, 1}, {1, 3}, {-1, 1}})
    EXPECT_THROW(group->subgroup(ranks, "wrong"), std::logic_error);
  EXPECT_EQ(group->subgroup({0, 1, 2}, "all")->size(), 3);
}

TEST(Subgroup, RanksThatNameOtherMembersAreTold) {
  for (const Kind kind : kAllKinds)
    run_ranks(kind, 3, [](World& world) {
      const Caught caught = catch_comm_error([&] {
        world.group().subgroup(world.rank() == 2 ? std::vector<int>{0, 2} : std::vector<int>{0, 1}, "pair");
      });
      EXPECT_EQ(caught.code, ExitCode::RanksDisagree) << caught.text;
    });
  EXPECT_EQ(leftovers(), std::vector<std::string>{});
}

TEST(Subgroup, RanksThatNameTheGroupDifferentlyAreTold) {
  for (const Kind kind : kAllKinds)
    run_ranks(kind, 3, [](World& world) {
      const Caught caught = catch_comm_error([&] { world.group().subgroup({0, 1}, world.rank() == 2 ? "data" : "pair"); });
      EXPECT_EQ(caught.code, ExitCode::RanksDisagree) << caught.text;
    });
  EXPECT_EQ(leftovers(), std::vector<std::string>{});
}

// The ranks of a subgroup of a subgroup are named by their world ranks.
TEST(Subgroup, OfASubgroupKnowsItsWorldRanks) {
  const auto body = [](World& world) {
    const auto stream = make_inline_stream();
    const auto upper = world.group().subgroup({1, 2, 3}, "upper");
    if (!upper) return;
    const auto last = upper->subgroup({1, 2}, "last");
    if (!last) return;
    std::vector<float> data(1 + last->rank());
    const Caught caught = catch_comm_error([&] { last->all_reduce(view(data), ReduceOp::Sum, *stream); });
    EXPECT_THAT(caught.text, HasSubstr("rank 0 (world rank 2) runs all_reduce of 1 float32, rank 1 (world rank 3) runs "
                                       "all_reduce of 2 float32"));
  };
  for (const Kind kind : kAllKinds) run_ranks(kind, 4, body);
}

TEST(TreeSum, IsNotDefinedOverSixRanks) {
  const auto group = make_meta_group(0, 6, "tensor");
  std::vector<float> data(3);
  EXPECT_THROW(group->all_reduce(view(data), ReduceOp::TreeSum, *make_inline_stream()), std::logic_error);
}

}  // namespace
}  // namespace trivet::comm
