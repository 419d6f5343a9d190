#include "cli/launch/cores.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "core/error.h"

namespace trivet::cli {
namespace {

std::vector<int> range(int count, int first = 0) {
  std::vector<int> cores(count);
  std::iota(cores.begin(), cores.end(), first);
  return cores;
}

TEST(CoresOfRank, AreContiguousAndTheFirstRanksHaveTheRemainder) {
  const auto of = [](int cores, int rank, int ranks) { return core_list_text(cores_of_rank(range(cores), rank, ranks)); };
  EXPECT_EQ(of(10, 0, 3), "0-3");
  EXPECT_EQ(of(10, 1, 3), "4-6");
  EXPECT_EQ(of(10, 2, 3), "7-9");
  EXPECT_EQ(of(11, 1, 3), "4-7");
  EXPECT_EQ(of(11, 2, 3), "8-10");
  EXPECT_EQ(of(3, 2, 3), "2");
  EXPECT_EQ(cores_of_rank({4, 8, 9, 30}, 1, 2), (std::vector<int>{9, 30}));
}

TEST(CoresOfRank, AreAllCoresOnceWhereThereAreEnough) {
  for (int count = 1; count <= 12; ++count)
    for (int ranks = 1; ranks <= count; ++ranks) {
      std::vector<int> all;
      for (int rank = 0; rank < ranks; ++rank)
        for (int core : cores_of_rank(range(count, 5), rank, ranks)) all.push_back(core);
      EXPECT_EQ(all, range(count, 5)) << count << " cores, " << ranks << " ranks";
    }
}

TEST(CoreList, IsReadAndWrittenAsRanges) {
  EXPECT_EQ(parse_core_list("0-2,5,3", range(8)), (std::vector<int>{0, 1, 2, 5, 3}));
  EXPECT_EQ(core_list_text({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_EQ(core_list_text({}), "");
  EXPECT_EQ(parse_core_list("7", range(8)), (std::vector<int>{7}));
  EXPECT_THROW(parse_core_list("8", range(8)), ConfigError);
  EXPECT_THROW(parse_core_list("6-8", range(8)), ConfigError);
  for (const char* bad :
       {"", "3-1", "-1", "1-", "1--2", "a", "1,,2", "0,", ",0", ",", "0--0", "-0", "1 ", "0x1", "0,0", "0-2,2"})
    EXPECT_THROW(parse_core_list(bad, range(8)), ConfigError) << bad;
}

}  // namespace
}  // namespace trivet::cli
