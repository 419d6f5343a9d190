// Ranks that are killed, stopped and left behind, for real. TRIVET_KILLS and TRIVET_SEED: how many kills, which ones
// (scripts/kill_soak).
#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <random>

#include "comm/member.h"
#include "tests/launch/launched_job.h"

namespace trivet::test {
namespace {

using ::testing::HasSubstr;

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoll(value);
}

// Ends of the survivors in ms after `start`; a second and a half is as good as never.
std::vector<double> ends_of_survivors(const LaunchedJob& job, size_t victim, steady_clock::time_point start) {
  std::vector<std::thread> threads;
  std::vector<double> ends(job.watches.size());
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    threads.emplace_back([&, rank] {
      ends_within(job.watches[rank], milliseconds(rank == victim ? 0 : 1500));
      ends[rank] = ms_since(start);
    });
  }
  for (auto& thread : threads) thread.join();
  ends.erase(ends.begin() + static_cast<std::ptrdiff_t>(victim));
  return ends;
}

void expect_nothing_left(const LaunchedJob& job) {
  EXPECT_TRUE(job.all_gone());
  EXPECT_EQ(job.shared_memory(), std::vector<std::string>{});
  EXPECT_FALSE(job.has_temporary_files());
}

void expect_survivors_name(const LaunchedJob& job, size_t ranks, size_t victim) {
  const std::string naming =
      "lost rank " + std::to_string(victim) + " (host " + comm::this_host() + ", pid " + std::to_string(job.pids[victim]) + ")";
  EXPECT_EQ(job.lines_with("error: ").size(), ranks) << "one line of each survivor, one of the launcher\n" << job.output();
  EXPECT_EQ(job.lines_with(naming).size(), ranks - 1) << naming << "\n" << job.output();
  EXPECT_EQ(job.lines_with("ended with exit code 10").size(), ranks - 1) << job.output();
}

void print_summary(std::vector<double> times, int64_t kills, int64_t seed) {
  std::sort(times.begin(), times.end());
  const auto percentile = [&](double p) { return times[static_cast<size_t>(p * static_cast<double>(times.size() - 1))]; };
  std::printf(
      "kill_soak: seed %ld, %ld kills, %zu survivors, from kill to end of the survivor: p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, "
      "max %.1f ms\n",
      static_cast<long>(seed), static_cast<long>(kills), times.size(), percentile(0.5), percentile(0.9), percentile(0.99),
      times.back());
}

TEST(KilledRank, IsNamedByAllOthersWithinASecondAndNothingIsLeft) {
  const int64_t kills = from_environment("TRIVET_KILLS", 12), seed = from_environment("TRIVET_SEED", 1);
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
    const auto ends = ends_of_survivors(job, victim, start);
    times.insert(times.end(), ends.begin(), ends.end());
    EXPECT_LT(*std::max_element(ends.begin(), ends.end()), 1000);
    EXPECT_EQ(job.wait(), 128 + SIGKILL);
    expect_survivors_name(job, ranks, victim);
    EXPECT_THAT(job.output(), HasSubstr("trivet: error: launch: rank " + std::to_string(victim) + " (pid " +
                                        std::to_string(job.pids[victim]) + ") was killed by signal 9 (SIGKILL)"));
    expect_nothing_left(job);
  }
  if (!times.empty()) print_summary(times, kills, seed);
}

TEST(KilledRank, IsNoticedByRanksThatComputeForLong) {
  LaunchedJob job(3, {"--steps", "10", "--compute-ms", "20000"});
  ASSERT_TRUE(job.find_ranks(3)) << job.output();
  std::this_thread::sleep_for(milliseconds(100));
  const auto start = steady_clock::now();
  ::kill(job.pids[1], SIGKILL);
  for (double end : ends_of_survivors(job, 1, start)) EXPECT_LT(end, 1000);
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
      std::ifstream children("/proc/" + std::to_string(job.pid()) + "/task/" + std::to_string(job.pid()) + "/children");
      int child = 0;
      while (children >> child) victim = child;
    }
    ASSERT_NE(victim, 0);
    const auto start = steady_clock::now();
    ::kill(victim, SIGKILL);
    EXPECT_EQ(job.wait(), 128 + SIGKILL) << job.output();
    EXPECT_LT(ms_since(start), 4000);  // who cannot notice it is ended by the launcher
    EXPECT_FALSE(job.has_temporary_files());
  }
}

TEST(StoppedRank, IsLostAtTheSilenceDeadline) {
  for (size_t victim : {size_t{0}, size_t{2}}) {
    LaunchedJob job(3, {"--steps", "1000000", "--compute-ms", "5", "--silence-ms", "600"});
    ASSERT_TRUE(job.find_ranks(3)) << job.output();
    const auto start = steady_clock::now();
    ::kill(job.pids[victim], SIGSTOP);
    for (double end : ends_of_survivors(job, victim, start)) {
      EXPECT_GT(end, 500);
      EXPECT_LT(end, 1400);
    }
    EXPECT_NE(job.wait(), 0);
    EXPECT_EQ(job.lines_with("lost rank " + std::to_string(victim)).size(), 2u) << job.output();
    EXPECT_EQ(job.lines_with("silent").size(), 2u) << job.output();
    expect_nothing_left(job);
  }
}

TEST(StoppedJob, GoesOnWhenItIsContinued) {
  LaunchedJob job(2, {"--steps", "400", "--compute-ms", "5", "--silence-ms", "600"});
  ASSERT_TRUE(job.find_ranks(2)) << job.output();
  for (int rank : job.pids) ::kill(rank, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(1000));
  for (int rank : job.pids) ::kill(rank, SIGCONT);
  EXPECT_EQ(job.wait(), 0) << job.output();
}

TEST(KilledLauncher, LeavesNobody) {
  LaunchedJob job(3, {"--steps", "1000000", "--compute-ms", "5"});
  ASSERT_TRUE(job.find_ranks(3)) << job.output();
  std::this_thread::sleep_for(milliseconds(50));
  ::kill(job.pid(), SIGKILL);
  for (const Descriptor& rank : job.watches) EXPECT_TRUE(ends_within(rank, milliseconds(1000)));
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
