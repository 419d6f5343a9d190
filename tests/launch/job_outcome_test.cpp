// Tests which rank the launcher names, as a function of what it saw.
#include "cli/launch/job_outcome.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>

#include <chrono>
#include <thread>
#include <utility>

#include "cli/launch/guardian.h"
#include "cli/launch/hosts/hosts_verdict.h"

namespace trivet::test {
namespace {

using cli::JobRecord;
using cli::RankEnd;
using comm::Loss;
using ::testing::HasSubstr;

RankEnd exited(int rank, int code, int look = 0) { return {.rank = rank, .pid = 100 + rank, .exit_code = code, .look = look}; }
RankEnd killed(int rank, int signal, int look = 0) {
  return {.rank = rank, .pid = 100 + rank, .exit_code = 128 + signal, .signal = signal, .look = look};
}
RankEnd by_us(RankEnd end) {
  end.by_us = true;
  return end;
}
RankEnd stopped(RankEnd end) {
  end.stopped = true;
  return by_us(end);
}

struct Case {
  const char* name;
  JobRecord job;
  int exit_code;
  std::string text;  // the full text
};

class OutcomeOfAJob : public ::testing::TestWithParam<Case> {};

TEST_P(OutcomeOfAJob, NamesTheCause) {
  const cli::JobOutcome outcome = cli::outcome_of(GetParam().job);
  EXPECT_EQ(outcome.exit_code, GetParam().exit_code);
  EXPECT_EQ(outcome.text, GetParam().text);
  EXPECT_EQ(outcome.ended_by_signal, GetParam().job.signal != 0);
  std::vector<std::string> lost;
  for (const cli::HostLoss& host : GetParam().job.hosts) lost.push_back(host.host);
  EXPECT_EQ(outcome.lost_hosts, lost);
}

struct HostsCase {
  const char* name;
  JobRecord job;
  cli::HostsEnd end;
  int exit_code;
  std::string text;
  std::vector<std::string> lost = {}, returned = {};
};

// Two hosts, "a" with ranks 0 and 1, "b" with ranks 2 and 3.
TEST(VerdictOfHosts, NamesWhatTheNextStartDoesWithout) {
  const cli::HostRanks a{.host = {.name = "a", .slots = {0, 1}}, .nodes = 2, .world_size = 4},
      b{.host = {.name = "b", .slots = {0, 1}}, .node_rank = 1, .nodes = 2, .first_rank = 2, .world_size = 4};
  const auto full = [](int rank) {
    return Loss{.by = rank, .rank = rank, .code = ExitCode::CheckpointNotWritten, .cause = "x"};
  };
  const cli::JobOutcome agent{.exit_code = 70, .text = "launch: host b: it broke"};
  const HostsCase cases[] = {
      {"one disk is full",
       {.ends = {exited(2, 14)}, .losses = {full(2)}},
       {.hosts = {a, b}},
       14,
       "; host b could not write a checkpoint",
       {"b"}},
      {"all disks are full", {.ends = {exited(2, 14)}, .losses = {full(2), full(1)}}, {.hosts = {a, b}}, 14, "rank 2"},
      {"a host came back",
       {.ends = {by_us(killed(0, SIGTERM))}},
       {.returned = "c", .hosts = {a, b}},
       143,
       "launch: host c answers again; the ranks have ended for it",
       {},
       {"c"}},
      {"a rank failed before that",
       {.ends = {exited(1, 3), by_us(killed(0, SIGTERM))}},
       {.returned = "c", .hosts = {a, b}},
       3,
       "rank 1"},
      {"a signal ended it",
       {.ends = {by_us(killed(0, SIGTERM))}, .signal = SIGTERM},
       {.returned = "c", .hosts = {a, b}},
       143,
       "signal 15"},
      {"an agent failed", {.ends = {exited(1, 10)}}, {.unexplained = agent, .hosts = {a, b}}, 70, "launch: host b: it broke"},
      {"an agent failed after a rank", {.ends = {exited(1, 3)}}, {.unexplained = agent, .hosts = {a, b}}, 3, "rank 1"},
  };
  for (const HostsCase& given : cases) {
    SCOPED_TRACE(given.name);
    const cli::JobOutcome outcome = cli::verdict_of(given.job, given.end);
    EXPECT_EQ(outcome.exit_code, given.exit_code);
    EXPECT_THAT(outcome.text, HasSubstr(given.text));
    EXPECT_EQ(outcome.lost_hosts, given.lost);
    EXPECT_EQ(outcome.returned_hosts, given.returned);
  }
}

TEST(GuardedOutcome, ArrivesAsItWas) {
  for (const cli::JobOutcome& sent :
       {cli::JobOutcome{.exit_code = 10, .text = "two\nlines", .ended_by_signal = true, .lost_hosts = {"a", "b.example"}},
        cli::JobOutcome{.exit_code = 143, .text = "host d", .lost_hosts = {"a"}, .returned_hosts = {"d", "e"}},
        cli::JobOutcome{.exit_code = 3, .text = "one"}, cli::JobOutcome{}}) {
    cli::LauncherSide side;
    const cli::JobOutcome got = cli::run_guarded([&](const cli::GuardianEnds&) { return sent; }, side);
    EXPECT_EQ(got.exit_code, sent.exit_code);
    EXPECT_EQ(got.text, sent.text);
    EXPECT_EQ(got.ended_by_signal, sent.ended_by_signal);
    EXPECT_EQ(got.lost_hosts, sent.lost_hosts);
    EXPECT_EQ(got.returned_hosts, sent.returned_hosts);
  }
}

// A launcher's side that is busy while the guardian, which has an order, ends.
struct LateOrder final : cli::LauncherSide {
  void step() override { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }
  std::vector<int> orders() override { return std::exchange(orders_, {}); }
  int patience_ms() const override { return 0; }

 private:
  std::vector<int> orders_{cli::kStillHere};
};

TEST(GuardedOutcome, ArrivesThoughTheGuardianLeftAnOrderUnread) {
  LateOrder side;
  const cli::JobOutcome got = cli::run_guarded(
      [](const cli::GuardianEnds& ends) {
        pollfd order{ends.orders, POLLIN, 0};
        return cli::JobOutcome{.exit_code = ::poll(&order, 1, 10000), .text = "whole"};
      },
      side);
  EXPECT_EQ(got.exit_code, 1);
  EXPECT_EQ(got.text, "whole");
}

const Loss kOneIsSilent{0, 1, ExitCode::PeerLost, "silent"};

INSTANTIATE_TEST_SUITE_P(
    All, OutcomeOfAJob,
    ::testing::Values(
        Case{"AllDone", {.ends = {exited(0, 0), exited(1, 0)}}, 0, ""}, Case{"NoRankAtAll", {}, 0, ""},
        Case{"AHostIsLostWithRanksThatNoticeIt",
             {.ends = {exited(0, 10, 1)}, .hosts = {{"b", 1, 3, "its connection has ended", 2}}, .losses = {kOneIsSilent}},
             10,
             "launch: host b (ranks 1 to 3) was lost: its connection has ended; other ranks lost rank 1: silent"},
        Case{"AHostIsLostBeforeARankFailsOfIt",
             {.ends = {exited(0, 1, 5)}, .hosts = {{"b", 1, 1, "its connection has ended", 4}}},
             10,
             "launch: host b (rank 1) was lost: its connection has ended"},
        Case{"AHostIsLostAfterARankHasFailed",
             {.ends = {exited(0, 16, 3)}, .hosts = {{"b", 1, 1, "its connection has ended", 4}}},
             16,
             "launch: rank 0 (pid 100) ended with exit code 16"},
        Case{"AHostIsLostAfterASignal",
             {.ends = {by_us(exited(0, 143))}, .hosts = {{"b", 1, 1, "it does not answer", 4}}, .signal = SIGTERM},
             143,
             "launch: host b (rank 1) was lost: it does not answer"},
        Case{"TwoHostsAreLost",
             {.hosts = {{"b", 1, 1, "first", 4}, {"c", 2, 2, "second", 5}}},
             10,
             "launch: host b (rank 1) was lost: first"},
        Case{"OneFailed", {.ends = {exited(0, 0), exited(1, 16)}}, 16, "launch: rank 1 (pid 101) ended with exit code 16"},
        Case{"KilledBeforeThoseThatLostIt",
             {.ends = {killed(2, 9, 1), exited(0, 10, 2), exited(1, 10, 2)}},
             137,
             "launch: rank 2 (pid 102) was killed by signal 9 (SIGKILL)"},
        Case{"KilledSeenAfterThoseThatLostIt",
             {.ends = {exited(0, 10, 1), exited(1, 10, 1), killed(2, 9, 2)}},
             137,
             "launch: rank 2 (pid 102) was killed by signal 9 (SIGKILL)"},
        Case{"KilledWhileOthersCouldNotJoin",
             {.ends = {exited(0, 13, 1), exited(1, 13, 1), killed(2, 9, 2)}},
             137,
             "launch: rank 2 (pid 102) was killed by signal 9 (SIGKILL)"},
        Case{"RendezvousBeforeThoseThatLostIt",
             {.ends = {exited(0, 10, 1), exited(1, 13, 2)}},
             13,
             "launch: rank 1 (pid 101) ended with exit code 13"},
        Case{"OnlyRendezvous",
             {.ends = {exited(0, 13, 1), exited(1, 13, 2)}},
             13,
             "launch: rank 0 (pid 100) ended with exit code 13"},
        Case{"FirstByTimeNotByRank",
             {.ends = {exited(1, 19, 3), exited(0, 16, 4)}},
             19,
             "launch: rank 1 (pid 101) ended with exit code 19"},
        Case{"FirstByTimeEvenIfListedLater",
             {.ends = {exited(0, 16, 4), exited(1, 19, 3)}},
             19,
             "launch: rank 1 (pid 101) ended with exit code 19"},
        Case{"KilledBeforeOneThatLeftAtTheSameLook",
             {.ends = {exited(0, 1, 5), killed(1, 11, 5)}},
             139,
             "launch: rank 1 (pid 101) was killed by signal 11 (SIGSEGV)"},
        Case{"LeftBeforeOneThatWasKilledLater",
             {.ends = {exited(0, 1, 5), killed(1, 11, 6)}},
             1,
             "launch: rank 0 (pid 100) ended with exit code 1"},
        Case{"ThoseTheLauncherEndedAreNotTheCause",
             {.ends = {by_us(killed(0, 15, 1)), exited(1, 3, 2)}},
             3,
             "launch: rank 1 (pid 101) ended with exit code 3"},
        Case{"LostOneIsNamedByTheOthers",
             {.ends = {exited(0, 10, 1), exited(2, 10, 1), stopped(killed(1, 15, 2))}, .losses = {kOneIsSilent}},
             10,
             "launch: rank 1 (pid 101) was lost, silent: it was stopped, as by SIGSTOP, and was ended by the launcher"},
        Case{"LostOneThatCameBack",
             {.ends = {exited(0, 10, 1), exited(2, 10, 1), exited(1, 10, 2)}, .losses = {kOneIsSilent}},
             10,
             "launch: rank 1 (pid 101) was lost, silent: it ended with exit code 10"},
        Case{"LostOneThatLeftWithoutAWord",
             {.ends = {exited(1, 0, 1), exited(0, 10, 2)}, .losses = {{0, 1, ExitCode::PeerLost, "eof"}}},
             10,
             "launch: rank 1 (pid 101) was lost, eof: it ended with exit code 0"},
        Case{"FirstOfSeveralLosses",
             {.ends = {exited(0, 10, 1), exited(2, 10, 1), by_us(exited(1, 10, 2))},
              .losses = {kOneIsSilent, {1, 0, ExitCode::PeerLost, "eof"}}},
             10,
             "launch: rank 1 (pid 101) was lost, silent: it did not end by itself and was ended by the launcher"},
        Case{"ALossOfARankThatIsNotThereIsNotBelieved",
             {.ends = {exited(0, 10, 1), exited(1, 10, 1)}, .losses = {{0, 7, ExitCode::PeerLost, "eof"}}},
             10,
             "launch: rank 0 (pid 100) ended with exit code 10"},
        Case{"AnOwnFailureOutweighsALoss",
             {.ends = {exited(0, 10, 1), exited(2, 16, 2), exited(1, 10, 3)}, .losses = {kOneIsSilent}},
             16,
             "launch: rank 2 (pid 102) ended with exit code 16"},
        Case{"StuckRankIsNamedNotTheOneThatGaveUp",
             {.ends = {exited(0, 11, 1), by_us(killed(1, 15, 2))},
              .losses = {{0, 1, ExitCode::NoProgress, "has not entered all_reduce"}}},
             11,
             "launch: rank 1 (pid 101) was lost, has not entered all_reduce: it did not end by itself and was ended by the "
             "launcher"},
        Case{"WithoutReportsTheStoppedOne",
             {.ends = {exited(0, 10, 1), by_us(killed(2, 15, 2)), stopped(killed(1, 15, 2))}},
             10,
             "launch: rank 1 (pid 101) was lost: it was stopped, as by SIGSTOP, and was ended by the launcher"},
        Case{"WithoutReportsTheOneThatStayed",
             {.ends = {exited(0, 13, 1), exited(2, 13, 1), by_us(killed(1, 9, 2))}},
             13,
             "launch: rank 1 (pid 101) was lost: it did not end by itself and was ended by the launcher"},
        Case{"WithoutReportsSeveralStayed",
             {.ends = {exited(0, 10, 1), by_us(killed(2, 15, 2)), by_us(killed(1, 15, 2))}},
             10,
             "launch: rank 0 (pid 100) ended with exit code 10"},
        Case{"TextOfRanksIsEscaped",
             {.ends = {exited(0, 10, 1), exited(1, 10, 2)}, .losses = {{0, 1, ExitCode::PeerLost, "\x1b[31mred"}}},
             10,
             "launch: rank 1 (pid 101) was lost, \\x1b[31mred: it ended with exit code 10"},
        Case{"Signal",
             {.ends = {by_us(exited(0, 143)), by_us(exited(1, 0))}, .signal = 15, .patience_s = 30},
             143,
             "launch: ended by signal 15 (SIGTERM): all 2 ranks ended in time"},
        Case{"SignalAndRanksThatWereTooSlow",
             {.ends = {by_us(killed(3, 9)), by_us(killed(1, 9)), by_us(exited(0, 143))}, .signal = 15, .patience_s = 30},
             143,
             "launch: ended by signal 15 (SIGTERM): ranks 1,3 had not ended 30 s later and had to be killed; "
             "--shutdown-timeout gives more time"},
        Case{"SignalAndTrainersUnderShellsThatWereTooSlow",
             {.ends = {by_us(killed(0, 15)), by_us(exited(1, 0))}, .signal = 15, .had_to_kill = true, .patience_s = 30},
             143,
             "launch: ended by signal 15 (SIGTERM): what the ranks had started had not ended 30 s later and had to be killed; "
             "--shutdown-timeout gives more time"},
        Case{"TwoSignalsAndTrainersUnderShells",
             {.ends = {by_us(killed(0, 15))}, .signal = 15, .killed_by_second_signal = true, .had_to_kill = true},
             143,
             "launch: ended by signal 15 (SIGTERM): a second signal killed what the ranks had started"},
        Case{"TwoSignalsAndNothingWasLeftToKill",
             {.ends = {by_us(killed(0, 15))}, .signal = 15, .killed_by_second_signal = true},
             143,
             "launch: ended by signal 15 (SIGTERM): all 1 ranks ended in time"},
        Case{"LossThatShellsHide",
             {.ends = {exited(0, 0, 1), exited(1, 0, 2)}, .losses = {{0, 7, ExitCode::PeerLost, "eof"}, kOneIsSilent}},
             10,
             "launch: rank 1 (pid 101) was lost, silent: it ended with exit code 0"},
        Case{"LossOfARankThatIsNotThereWhenAllEndedWell",
             {.ends = {exited(0, 0), exited(1, 0)}, .losses = {{0, 7, ExitCode::PeerLost, "eof"}}},
             0,
             ""},
        Case{"TwoSignals",
             {.ends = {by_us(killed(0, 9))}, .signal = 2, .killed_by_second_signal = true, .patience_s = 30},
             130,
             "launch: ended by signal 2 (SIGINT): a second signal killed rank 0"},
        Case{"SignalAndARankThatCouldNotSave",
             {.ends = {by_us(exited(0, 14)), by_us(killed(1, 15))}, .signal = 15, .patience_s = 30},
             143,
             "launch: ended by signal 15 (SIGTERM): all 2 ranks ended in time; rank 0 (pid 100) ended with exit code 14"},
        Case{"FailureBeforeTheSignal",
             {.ends = {exited(1, 19, 1), by_us(killed(0, 15, 2))}, .signal = 15, .patience_s = 30},
             19,
             "launch: rank 1 (pid 101) ended with exit code 19"}),
    [](const auto& test) { return std::string(test.param.name); });

// The rank that is the cause, or -1. The ends are in the order in which the ranks ended.
int cause_of(const std::vector<RankEnd>& ends) {
  const RankEnd* cause = cli::root_cause(ends);
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
  EXPECT_EQ(cli::describe({.rank = 2, .pid = 4712, .exit_code = 16}), "rank 2 (pid 4712) ended with exit code 16");
  EXPECT_EQ(cli::describe({.rank = 3, .pid = 4711, .exit_code = 137, .signal = 9}),
            "rank 3 (pid 4711) was killed by signal 9 (SIGKILL)");
  EXPECT_EQ(cli::describe({.rank = 2, .pid = 4712, .exit_code = 16, .host = "b"}),
            "rank 2 (host b, pid 4712) ended with exit code 16");
}

TEST(RankEndMessage, ArrivesAsItWasSent) {
  const RankEnd sent{.rank = 3, .pid = 4711, .exit_code = 137, .signal = 9, .by_us = true, .stopped = true};
  const auto arrived = cli::rank_end_from_message(cli::to_message(sent));
  ASSERT_TRUE(arrived);
  EXPECT_EQ(arrived->rank, 3);
  EXPECT_EQ(arrived->pid, 4711);
  EXPECT_EQ(arrived->exit_code, 137);
  EXPECT_EQ(arrived->signal, 9);
  EXPECT_TRUE(arrived->by_us);
  EXPECT_TRUE(arrived->stopped);
  for (const std::string& other : {std::string(), std::string("end"), std::string("end 1 2 3"),
                                   std::string(cli::kHadToKillMessage), comm::to_message(kOneIsSilent)})
    EXPECT_FALSE(cli::rank_end_from_message(other)) << other;
}

}  // namespace
}  // namespace trivet::test
