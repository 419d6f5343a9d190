// Real ranks are killed, and nothing may be left of them. TRIVET_KILLS and TRIVET_SEED set how many kills there are, and which
// (scripts/kill_soak).
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <random>

#include "comm/member.h"
#include "tests/launch/launched_job.h"

namespace trivet::test {
namespace {

using ::testing::HasSubstr;

void expect_survivors_name(const LaunchedJob& job, size_t ranks, size_t victim) {
  const std::string naming =
      "lost rank " + std::to_string(victim) + " (host " + comm::this_host() + ", pid " + std::to_string(job.pids[victim]) + ")";
  EXPECT_EQ(job.lines_with("error: ").size(), ranks) << "one line per survivor and one from the launcher\n" << job.output();
  EXPECT_EQ(job.lines_with(naming).size(), ranks - 1) << naming << "\n" << job.output();
  EXPECT_EQ(job.lines_with("ended with exit code 10").size(), ranks - 1) << job.output();
}

// The promise of a second is measured where many are killed (scripts/kill_soak). In a test, other programs may have all cores.
constexpr int64_t kManyKills = 100;
constexpr milliseconds kPromise{1000}, kOnABusyMachine{20000};

TEST(KilledRank, IsNamedByAllOthersWithinASecondAndNothingIsLeft) {
  const int64_t kills = from_environment("TRIVET_KILLS", 12), seed = from_environment("TRIVET_SEED", 1);
  const milliseconds patience = kills >= kManyKills ? kPromise : kOnABusyMachine;
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  std::vector<double> times;
  for (int64_t kill = 0; kill < kills && !testing::Test::HasFailure(); ++kill) {
    const size_t ranks = 2 + random() % 4, victim = random() % ranks;
    const auto moment = std::chrono::microseconds(random() % 60000);
    const std::string compute_ms = std::to_string(random() % 4 * 5);
    SCOPED_TRACE("kill " + std::to_string(kill) + " of seed " + std::to_string(seed) + ": rank " + std::to_string(victim) +
                 " of " + std::to_string(ranks));
    LaunchedJob job(static_cast<int>(ranks), {"--steps", "1000000", "--compute-ms", compute_ms});
    ASSERT_TRUE(job.find_ranks(ranks)) << job.output();
    std::this_thread::sleep_for(moment);
    const auto start = steady_clock::now();
    ::kill(job.pids[victim], SIGKILL);
    const auto ends = ends_of_survivors(job, victim, start, 2 * patience);
    times.insert(times.end(), ends.begin(), ends.end());
    EXPECT_LT(*std::max_element(ends.begin(), ends.end()), patience.count());
    EXPECT_EQ(job.wait(), 128 + SIGKILL);
    expect_survivors_name(job, ranks, victim);
    EXPECT_THAT(job.output(), HasSubstr("trivet: error: launch: rank " + std::to_string(victim) + " (pid " +
                                        std::to_string(job.pids[victim]) + ") was killed by signal 9 (SIGKILL)"));
    expect_nothing_left(job);
  }
  print_summary(fmt::format("kill_soak: seed {}, {} kills, from kill to end of the survivor", seed, kills), times);
}

TEST(KilledRank, IsNoticedByRanksThatComputeForLong) {
  LaunchedJob job(3, {"--steps", "10", "--compute-ms", "60000"});
  ASSERT_TRUE(job.find_ranks(3)) << job.output();
  std::this_thread::sleep_for(milliseconds(100));
  const auto start = steady_clock::now();
  ::kill(job.pids[1], SIGKILL);
  for (double end : ends_of_survivors(job, 1, start, 2 * kOnABusyMachine)) EXPECT_LT(end, kOnABusyMachine.count());
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_EQ(job.lines_with("lost rank 1 (host").size(), 2u) << job.output();
  expect_nothing_left(job);
}

TEST(KilledRank, WhileTheJobStartsEndsItToo) {
  for (int delay_ms : {0, 3, 8, 15, 30}) {
    LaunchedJob job(3, {"--steps", "1000000"}, {"--save_pid"});
    ASSERT_TRUE(job.prints("pids are in", 1));
    std::this_thread::sleep_for(milliseconds(delay_ms));
    int victim = 0;
    for (const auto start = steady_clock::now(); victim == 0 && ms_since(start) < 5000;) {
      for (int child : children_of(job.guardian())) victim = child;
    }
    ASSERT_NE(victim, 0);
    const auto start = steady_clock::now();
    ::kill(victim, SIGKILL);
    EXPECT_EQ(job.wait(), 128 + SIGKILL) << job.output();
    EXPECT_LT(ms_since(start), 20000) << "the launcher ends a rank that cannot notice it";
    EXPECT_FALSE(job.has_temporary_files());
  }
}

TEST(StoppedRank, IsNamedByTheLauncherEvenIfItEndsLikeTheOthers) {
  LaunchedJob job(3, {"--steps", "1000000", "--compute-ms", "5", "--silence-ms", "600"});
  ASSERT_TRUE(job.find_ranks(3)) << job.output();
  ::kill(job.pids[1], SIGSTOP);
  ASSERT_TRUE(job.prints("lost rank 1 (host", 1)) << job.output();
  ::kill(job.pids[1], SIGCONT);  // it finds that it was given up, and exits with code 10
  EXPECT_EQ(job.wait(), 10);
  EXPECT_THAT(job.output(), HasSubstr("trivet: error: launch: rank 1 (pid " + std::to_string(job.pids[1]) +
                                      ") was lost, stopped (SIGSTOP or Ctrl-Z)"));
}

TEST(StoppedRank, ThatNeverJoinedIsNamed) {
  LaunchedProcess job({kTrivet, "launch", "--num_gpus", "3", "/bin/sh", "-c",
                       "test $RANK = 1 && kill -STOP $$; exec " + kRankProgram + " --join-ms 500"});
  EXPECT_EQ(job.wait(), 13) << job.output();
  EXPECT_EQ(job.lines_with("1 of 3 ranks did not join in 0.5 s: 1").size(), 2u) << job.output();
  EXPECT_THAT(job.output(), HasSubstr("trivet: error: launch: rank 1 (pid "));
  EXPECT_THAT(job.output(), HasSubstr(") was lost: it was stopped, as by SIGSTOP, and was ended by the launcher"));
}

TEST(KilledLauncher, LeavesNobody) {
  LaunchedJob job(3, {"--steps", "1000000", "--compute-ms", "5"});
  ASSERT_TRUE(job.find_ranks(3)) << job.output();
  std::this_thread::sleep_for(milliseconds(50));
  ::kill(job.pid(), SIGKILL);
  for (const Descriptor& rank : job.watches) EXPECT_TRUE(ends_within(rank, milliseconds(20000)));
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_EQ(job.shared_memory(), std::vector<std::string>{});
}

TEST(InterruptedLauncher, PassesTheSignalOn) {
  for (int signal : {SIGINT, SIGTERM}) {
    LaunchedJob job(2, {"--steps", "1000000", "--compute-ms", "5"});
    ASSERT_TRUE(job.find_ranks(2)) << job.output();
    ::kill(job.pid(), signal);
    EXPECT_EQ(job.wait(), 128 + signal);
    EXPECT_THAT(job.output(), HasSubstr("signal " + std::to_string(signal) + " received, passing it on to all ranks"));
    expect_nothing_left(job);
  }
}

}  // namespace
}  // namespace trivet::test
