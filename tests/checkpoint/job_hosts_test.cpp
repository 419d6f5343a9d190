// Which ranks share a host, and what they send one another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "comm/world.h"
#include "engine/checkpoint/host_copies.h"
#include "engine/checkpoint/job_hosts.h"

namespace trivet::checkpoint {
namespace {

using ::testing::ElementsAre;

TEST(JobHosts, AreFoundByTheirNames) {
  comm::run_threads(4, [](comm::World& world) {
    const JobHosts hosts = find_hosts(world.group(), world.rank() == 1 ? "b" : "a");
    EXPECT_THAT(hosts.names, ElementsAre("a", "b"));
    EXPECT_THAT(hosts.map.ranks, ElementsAre(ElementsAre(0, 2, 3), ElementsAre(1)));
    EXPECT_EQ(hosts.leads(), world.rank() < 2);
    EXPECT_EQ(hosts.host_of(1), 1);
    EXPECT_EQ(hosts.host_of(3), 0);
    EXPECT_EQ(hosts.partner_of(3, 1), 1);
    EXPECT_EQ(hosts.partner_of(1, 0), 0);
    EXPECT_THAT(holders_of(1, hosts, 1), ElementsAre(1, 0));
    EXPECT_THAT(holders_of(3, hosts, 9), ElementsAre(0, 1)) << "at most all hosts";
  });
}

TEST(JobHosts, ExchangeBytesOverTheGroup) {
  comm::run_threads(3, [](comm::World& world) {
    const JobHosts hosts = find_hosts(world.group(), "a");
    const auto rank = static_cast<std::byte>(world.rank());
    // Rank r sends r bytes to the next rank.
    const std::array<std::byte, 2> out{rank, rank};
    std::array<std::byte, 2> in{};
    const int next = (world.rank() + 1) % 3, before = (world.rank() + 2) % 3;
    comm::ExchangeCounts counts{.sent = {0, 0, 0}, .received = {0, 0, 0}};
    counts.sent[next] = world.rank();
    counts.received[before] = before;
    hosts.exchange(std::span(out).first(world.rank()), std::span(in).first(before), counts);
    for (int i = 0; i < before; ++i) EXPECT_EQ(in[i], static_cast<std::byte>(before));
  });
}

}  // namespace
}  // namespace trivet::checkpoint
