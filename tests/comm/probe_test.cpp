#include "comm/hosts/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace trivet::comm {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

TEST(ProbePartners, AreTheRanksInTheSamePlaceOnTheOtherHosts) {
  const std::vector<int> hosts{7, 7, 2, 2, 9, 9};
  EXPECT_THAT(probe_partners(0, hosts), ElementsAre(2, 4));
  EXPECT_THAT(probe_partners(3, hosts), ElementsAre(1, 5));
}

TEST(ProbePartners, AreOneOrMoreWhereHostsHaveDifferentNumbersOfRanks) {
  const std::vector<int> hosts{0, 0, 0, 0, 0, 1, 1};
  EXPECT_THAT(probe_partners(4, hosts), ElementsAre(5));
  EXPECT_THAT(probe_partners(5, hosts), ElementsAre(0, 2, 4));
}

TEST(ProbePartners, AreNoneOnOneHost) { EXPECT_THAT(probe_partners(1, {3, 3, 3}), ElementsAre()); }

// Dealings in any order: each rank tries every other host, and its partners expect its message.
TEST(ProbePartners, AreOnEveryOtherHostAndMutual) {
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{
           {0, 1, 2, 0, 1, 2}, {0, 1, 1, 1, 2, 2, 0, 3}, {5, 5, 5, 4, 4, 4, 4, 4, 4, 4, 3}, {1, 2, 3, 4}}) {
    const std::set<int> all(hosts.begin(), hosts.end());
    for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank) {
      std::set<int> reached{hosts[rank]};
      for (int partner : probe_partners(rank, hosts)) {
        EXPECT_NE(hosts[partner], hosts[rank]);
        EXPECT_THAT(probe_partners(partner, hosts), Contains(rank));
        reached.insert(hosts[partner]);
      }
      EXPECT_EQ(reached, all) << "rank " << rank;
    }
  }
}

}  // namespace
}  // namespace trivet::comm
