// trivet doctor --hosts: every pair of hosts is measured once, and the host that differs is named.
#include "autotune/doctor_hosts.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>

#include "comm/world.h"
#include "core/error.h"

namespace trivet::autotune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(RoundsOfPairs, MeasureEveryPairOnceAndNoHostTwiceAtATime) {
  for (int hosts = 1; hosts <= 9; ++hosts) {
    std::set<std::pair<int, int>> all;
    for (const auto& pairs : rounds_of_pairs(hosts)) {
      std::set<int> busy;
      for (const auto& [low, high] : pairs) {
        EXPECT_LT(low, high);
        EXPECT_TRUE(busy.insert(low).second && busy.insert(high).second) << hosts;
        EXPECT_TRUE(all.insert({low, high}).second) << hosts;
      }
    }
    EXPECT_EQ(all.size(), static_cast<size_t>(hosts * (hosts - 1) / 2));
    EXPECT_LE(rounds_of_pairs(hosts).size(), static_cast<size_t>(hosts)) << "pairs are measured at the same time";
  }
}

HostExamined host(const std::string& name, double copy) {
  return {name, {{"memory", Health::Fine, "much", "", {{"total_bytes", 100}, {"copy_bytes_per_second", copy}}}}};
}

// Links of 10 bytes/s, but those of `slow` 1.
NetworkMeasured network(int hosts, int slow) {
  NetworkMeasured network{.hosts = hosts};
  for (int from = 0; from < hosts; ++from)
    for (int to = 0; to < hosts; ++to) {
      network.bytes_per_second.push_back(from == to ? 0 : from == slow || to == slow ? 1e9 : 1e10);
      network.seconds.push_back(from == to ? 0 : 1e-5 * (1 + from));
    }
  return network;
}

TEST(OddOnesOut, AreHostsWithASlowPartOrASlowLink) {
  EXPECT_THAT(odd_ones_out({host("a", 10), host("b", 9), host("c", 11), host("d", 6)}, network(4, 1)),
              ElementsAre("d: copy_bytes_per_second is 6; half of the hosts have 10 or more",
                          "b: its links carry 8.00 Gbit/s on average; those of half of the hosts 56.00 or more"));
  EXPECT_THAT(odd_ones_out({host("a", 10), host("b", 9)}, network(2, -1)), IsEmpty());
  EXPECT_THAT(odd_ones_out({host("a", 10)}, network(1, -1)), IsEmpty());
}

TEST(DescribeHosts, ShowsEveryHostAndEveryLink) {
  const std::string text = describe_hosts({host("a", 10), host("b", 9), host("c", 10)}, network(3, 2));
  EXPECT_THAT(text, HasSubstr("a\n  memory    ok       much\nb\n"));
  EXPECT_THAT(text, HasSubstr("Gbit/s to          a          b          c\na                  -      80.00       8.00\n"));
  EXPECT_THAT(text, HasSubstr("us to              a          b          c\na                  -         10         10\n"
                              "b                 20          -         20\n"));
  EXPECT_THAT(text, HasSubstr("differs: c: its links carry 8.00 Gbit/s"));
  EXPECT_THAT(describe_hosts({host("a", 10)}, {}), HasSubstr("memory")) << "with --quick the network is not measured";
  const auto json = nlohmann::json::parse(hosts_as_json({host("a", 10), host("b", 9), host("c", 10)}, network(3, 2)));
  EXPECT_EQ(json.at("hosts").size(), 3u);
  EXPECT_EQ(json.at("links").size(), 6u);
  EXPECT_EQ(json.at("links")[1].at("to"), "c");
  EXPECT_EQ(json.at("links")[1].at("bytes_per_second"), 1e9);
  EXPECT_EQ(json.at("differs").size(), 1u);
}

TEST(HostExamined, ArrivesAsItWas) {
  HostExamined sent = host("a", 10);
  sent.findings.push_back({"GPUs", Health::Missing, "none", "buy one", {}});
  const HostExamined got = decode_host(encode(sent));
  EXPECT_EQ(got.name, "a");
  ASSERT_EQ(got.findings.size(), 2u);
  EXPECT_EQ(got.findings[0].figures, sent.findings[0].figures);
  EXPECT_EQ(got.findings[1].health, Health::Missing);
  EXPECT_EQ(got.findings[1].text, "none");
  EXPECT_EQ(got.findings[1].advice, "buy one");
  EXPECT_THROW(decode_host("{\"host\": 3}"), Error);
}

TEST(MeasureNetwork, GivesEveryRankTheFiguresOfAll) {
  comm::run_threads(3, [](comm::World& world) {
    const auto texts = gather_texts(world.group(), std::string(world.rank() * 5, 'x'));
    EXPECT_THAT(texts, ElementsAre("", "xxxxx", "xxxxxxxxxx"));
    const NetworkMeasured measured = measure_network(world.group());
    ASSERT_EQ(measured.hosts, 3);
    for (int from = 0; from < 3; ++from)
      for (int to = 0; to < 3; ++to) {
        EXPECT_EQ(measured.bandwidth(from, to) > 0, from != to);
        EXPECT_EQ(measured.latency(from, to) > 0, from != to);
        EXPECT_LT(measured.latency(from, to), 1) << "seconds";
      }
    EXPECT_GT(measured.all_reduce_seconds, 0);
    EXPECT_EQ(measured.all_reduce_bytes, 64 << 20);
  });
}

}  // namespace
}  // namespace trivet::autotune
