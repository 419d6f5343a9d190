// Tests the launcher's arithmetic and parsers without starting anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "cli/launch/cores.h"
#include "cli/launch/hostfile.h"
#include "cli/launch/job_outcome.h"
#include "core/error.h"

namespace trivet::cli {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

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

TEST(CoresOfRank, AreSharedInTurnsWhereThereAreTooFew) {
  for (int rank = 0; rank < 7; ++rank)
    EXPECT_EQ(cores_of_rank({4, 8, 9}, rank, 7), (std::vector<int>{std::vector{4, 8, 9}[rank % 3]}));
}

TEST(CoreList, IsReadAndWrittenAsRanges) {
  EXPECT_EQ(parse_core_list("0-2,5,2-3", range(8)), (std::vector<int>{0, 1, 2, 5, 3}));
  EXPECT_EQ(core_list_text({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_EQ(core_list_text({}), "");
  EXPECT_EQ(parse_core_list("7", range(8)), (std::vector<int>{7}));
  EXPECT_THROW(parse_core_list("8", range(8)), ConfigError);
  EXPECT_THROW(parse_core_list("6-8", range(8)), ConfigError);
  for (const char* bad : {"", "3-1", "-1", "1-", "1--2", "a", "1,,2", "1 ", "0x1"})
    EXPECT_THROW(parse_core_list(bad, range(8)), ConfigError) << bad;
}

std::string slots_of(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) {
    text += (text.empty() ? "" : " ") + host.name + ":";
    for (int slot : host.slots) text += std::to_string(slot);
  }
  return text;
}

TEST(HostFileLines, AreAHostAndItsSlots) {
  EXPECT_EQ(slots_of(parse_hosts("a slots=2 # first\n\n  b.c-d_e slots=1\n# end", "hosts")), "a:01 b.c-d_e:0");
  EXPECT_EQ(parse_hosts("a slots=4096", "hosts").at(0).slots.size(), 4096u);
}

TEST(HostFileLines, ThatSayAnythingElseAreRefusedWithTheirPlace) {
  for (const char* line :
       {"a", "a 2", "a slot=2", "a slots=1 2", "a slots=1 slots=1", "-a slots=1", "a/b slots=1", "a;b slots=1"})
    EXPECT_THAT([&] { parse_hosts(std::string("x slots=1\n") + line, "hosts"); },
                ThrowsMessage<ConfigError>(std::string("hosts:2: \"") + line + "\" is not accepted; write \"host slots=N\""))
        << line;
  for (const char* number : {"0", "-1", "4097", "1x", "", "99999999999"})
    EXPECT_THAT([&] { parse_hosts(std::string("a slots=") + number, "hosts"); },
                ThrowsMessage<ConfigError>(HasSubstr(std::string("\"") + number + "\" is not a number from 1 to 4096")))
        << number;
  EXPECT_THROW(parse_hosts("a slots=1\na slots=1", "hosts"), ConfigError);
  EXPECT_THROW(parse_hosts("", "hosts"), ConfigError);
}

TEST(HostFilters, IncludeAndExcludeHostsAndSlots) {
  const std::vector<Host> hosts{{"a", {0, 1, 2}}, {"b", {0, 1}}};
  const auto filtered = [&](const std::string& include, const std::string& exclude) {
    return slots_of(filter_hosts(hosts, include, exclude));
  };
  EXPECT_EQ(filtered("", ""), "a:012 b:01");
  EXPECT_EQ(filtered("b", ""), "b:01");
  EXPECT_EQ(filtered("b:1@a:2,0", ""), "b:1 a:20");
  EXPECT_EQ(filtered("", "a:1"), "a:02 b:01");
  EXPECT_EQ(filtered("", "a:0,2@b:1"), "a:1 b:0");
  // A host with no slot left is dropped: nothing would start there, and it would still count as a host.
  EXPECT_EQ(filtered("", "a"), "b:01");
  EXPECT_EQ(filtered("", "b:0,1"), "a:012");
  EXPECT_THAT([&] { filtered("", "a@b"); }, ThrowsMessage<ConfigError>("--exclude a@b: leaves no slot"));
  EXPECT_THAT([&] { filtered("c", ""); },
              ThrowsMessage<ConfigError>("--include: host \"c\" is not in the hostfile, which names a, b"));
  EXPECT_THAT([&] { filtered("b:2", ""); }, ThrowsMessage<ConfigError>("--include: host \"b\" has no slot 2; it has 0,1"));
  EXPECT_THROW(filtered("a", "b"), ConfigError);
}

// The rank that is the cause, or -1. The ends are in the order in which the ranks ended.
int cause_of(const std::vector<RankEnd>& ends) {
  const RankEnd* cause = root_cause(ends);
  return cause == nullptr ? -1 : cause->rank;
}

TEST(RootCause, IsTheFirstRankThatFailedByItself) {
  constexpr int kLost = static_cast<int>(ExitCode::PeerLost);
  const auto end = [](int rank, int code, bool by_us = false) {
    return RankEnd{.rank = rank, .exit_code = code, .by_us = by_us};
  };
  EXPECT_EQ(cause_of({}), -1);
  EXPECT_EQ(cause_of({end(0, 0), end(1, 0)}), -1);
  EXPECT_EQ(cause_of({end(0, 0), end(1, 3), end(2, 4)}), 1);
  EXPECT_EQ(cause_of({end(2, kLost), end(1, 16), end(0, kLost)}), 1);  // the others say that they lost it
  EXPECT_EQ(cause_of({end(2, 143, true), end(1, 16)}), 1);             // ended by the launcher
  // If no rank is the cause, the first that lost a peer is named, and a rank that the launcher ended only if there is no such
  // rank.
  EXPECT_EQ(cause_of({end(2, kLost), end(1, kLost), end(0, kLost)}), 2);
  EXPECT_EQ(cause_of({end(2, 143, true), end(1, kLost), end(0, kLost)}), 1);
  EXPECT_EQ(cause_of({end(1, kLost), end(2, 143, true)}), 1);
  EXPECT_EQ(cause_of({end(2, 143, true), end(1, 137, true)}), 2);
  EXPECT_EQ(cause_of({end(0, 0), end(1, kLost, true)}), 1);
}

TEST(DescribeRankEnd, SaysWhetherItWasKilled) {
  EXPECT_EQ(describe({.rank = 2, .pid = 4712, .exit_code = 16}), "rank 2 (pid 4712) ended with exit code 16");
  EXPECT_EQ(describe({.rank = 3, .pid = 4711, .exit_code = 137, .signal = 9}),
            "rank 3 (pid 4711) was killed by signal 9 (SIGKILL)");
}

}  // namespace
}  // namespace trivet::cli
