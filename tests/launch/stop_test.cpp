// Real ranks are stopped (SIGSTOP) or their main thread stands still, and a job under load must be left alone.
// scripts/stop_soak sets how many, how long and which ones with TRIVET_STOPS, TRIVET_STUCK, TRIVET_LOAD_SECONDS and
// TRIVET_SEED.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <random>

#include "comm/member.h"
#include "tests/launch/launched_job.h"

namespace trivet::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr milliseconds kNever{20000};  // for one stop, on a machine that may be busy; the soak checks the times
constexpr size_t kSoak = 20;           // enough times for percentiles
const std::vector<std::string> kSteps{"--steps", "1000000", "--compute-ms", "2", "--silence-ms", "600000"};

// Silence is allowed for 10 minutes, so only the state of the process can have told.
TEST(StoppedRank, IsNamedByAllOthersLongBeforeTheSilenceDeadline) {
  const int64_t stops = from_environment("TRIVET_STOPS", 3), seed = from_environment("TRIVET_SEED", 1);
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  std::vector<double> times;
  for (int64_t stop = 0; stop < stops && !testing::Test::HasFailure(); ++stop) {
    const size_t ranks = 2 + random() % 4, victim = stop == 0 ? 0 : random() % ranks;
    const auto moment = std::chrono::microseconds(random() % 60000);
    SCOPED_TRACE(fmt::format("stop {} of seed {}: rank {} of {}", stop, seed, victim, ranks));
    LaunchedJob job(static_cast<int>(ranks), kSteps);
    ASSERT_TRUE(job.find_ranks(ranks)) << job.output();
    std::this_thread::sleep_for(moment);
    const auto start = steady_clock::now();
    ::kill(job.pids[victim], SIGSTOP);
    const auto ends = ends_of_survivors(job, victim, start, kNever);
    times.insert(times.end(), ends.begin(), ends.end());
    EXPECT_LT(*std::max_element(ends.begin(), ends.end()), kNever.count());
    EXPECT_NE(job.wait(), 0);
    const std::string naming = fmt::format("lost rank {} (host {}, pid {})", victim, comm::this_host(), job.pids[victim]);
    EXPECT_EQ(job.lines_with(naming).size(), ranks - 1) << job.output();
    EXPECT_EQ(job.lines_with(": stopped (SIGSTOP or Ctrl-Z)").size(), ranks - 1) << job.output();
    EXPECT_THAT(job.last_line(),
                StartsWith(fmt::format("trivet: error: launch: rank {} (pid {}) was lost, stopped", victim, job.pids[victim])))
        << job.output();
    expect_nothing_left(job);
  }
  print_summary(fmt::format("stop_soak: seed {}, {} ranks stopped, from SIGSTOP to end of the survivor", seed, stops), times);
  if (times.size() >= kSoak) {
    EXPECT_LT(percentile(times, 0.9), 1000);
  }
}

TEST(StoppedRank, IsSeenByRanksThatComputeForLong) {
  LaunchedJob job(3, {"--steps", "10", "--compute-ms", "60000", "--silence-ms", "600000"});
  ASSERT_TRUE(job.find_ranks(3)) << job.output();
  const auto start = steady_clock::now();
  ::kill(job.pids[1], SIGSTOP);
  for (double end : ends_of_survivors(job, 1, start, kNever)) EXPECT_LT(end, kNever.count());
  EXPECT_NE(job.wait(), 0);
  EXPECT_EQ(job.lines_with("lost rank 1 (host").size(), 2u) << job.output();
}

TEST(StoppedRank, BeforeItJoinsEndsTheJoiningForAll) {
  const int64_t stops = std::max<int64_t>(1, from_environment("TRIVET_STOPS", 2) / 5);
  std::vector<double> times;
  for (int64_t stop = 0; stop < stops; ++stop) {
    for (int victim : {0, 2}) {
      const auto start = steady_clock::now();
      LaunchedJob job(3, {"--join-ms", "600000", "--stop-before-join", std::to_string(victim)});
      EXPECT_NE(job.wait(), 0);
      times.push_back(ms_since(start));
      EXPECT_GE(job.lines_with(fmt::format("rendezvous: rank {} (pid ", victim)).size(), 1u) << job.output();
      EXPECT_THAT(job.output(), HasSubstr("was stopped (SIGSTOP or Ctrl-Z) before it joined; continue it with kill -CONT "));
    }
  }
  print_summary("stop_soak: ranks stopped before they join, from the launch to the end of the job", times);
}

TEST(StoppedJob, GoesOnWhenItIsContinued) {
  LaunchedJob job(2, {"--steps", "400", "--compute-ms", "5", "--silence-ms", "600"});
  ASSERT_TRUE(job.find_ranks(2)) << job.output();
  for (int rank : job.pids) ::kill(rank, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(1000));
  for (int rank : job.pids) ::kill(rank, SIGCONT);
  EXPECT_EQ(job.wait(), 0) << job.output();
}

TEST(StoppedRank, ForAMomentIsNoLoss) {
  LaunchedJob job(2, {"--steps", "300", "--compute-ms", "5"});
  ASSERT_TRUE(job.find_ranks(2)) << job.output();
  for (int rank : job.pids) {
    ::kill(rank, SIGSTOP);
    std::this_thread::sleep_for(milliseconds(100));
    ::kill(rank, SIGCONT);
  }
  EXPECT_EQ(job.wait(), 0) << job.output();
}

// The process lives and its monitor sends heartbeats, but its main thread does nothing more. It is named in a line, and the
// deadline stays.
TEST(StuckRank, IsNamedInALineWhileTheOthersWait) {
  const int64_t stuck = from_environment("TRIVET_STUCK", 2), seed = from_environment("TRIVET_SEED", 1);
  std::mt19937_64 random(static_cast<uint64_t>(seed) + 1);
  std::vector<double> times;
  for (int64_t round = 0; round < stuck && !testing::Test::HasFailure(); ++round) {
    const size_t ranks = 2 + random() % 4, victim = random() % ranks;
    const auto moment = std::chrono::microseconds(random() % 60000);
    SCOPED_TRACE(fmt::format("round {} of seed {}: rank {} of {}", round, seed, victim, ranks));
    LaunchedJob job(static_cast<int>(ranks), kSteps);
    ASSERT_TRUE(job.find_ranks(ranks)) << job.output();
    std::this_thread::sleep_for(moment);
    const auto start = steady_clock::now();
    ::kill(job.pids[victim], SIGUSR1);
    const std::string naming = fmt::format("rank {} (host {}, pid {}) has not ", victim, comm::this_host(), job.pids[victim]);
    ASSERT_TRUE(job.prints(naming, 1)) << job.output();
    times.push_back(ms_since(start));
    EXPECT_THAT(job.output(), HasSubstr(" all_reduce (max) of 100000 float32, number "));
    EXPECT_THAT(job.output(), HasSubstr("giving up after 600 s"));
    EXPECT_EQ(job.lines_with(") has not ").size(), 1u) << "one line for all that wait\n" << job.output();
    EXPECT_FALSE(ends_within(job.watches[(victim + 1) % ranks], milliseconds(0))) << "the job keeps waiting";
  }
  print_summary(fmt::format("stop_soak: seed {}, {} main threads that stand still, from then to the line", seed, stuck), times);
  if (times.size() >= kSoak) {
    EXPECT_LT(percentile(times, 0.9), 3000);
  }
}

// Eight ranks compute, and two more threads take what they can, on however many cores there are.
TEST(LoadedJob, LosesNobody) {
  const int64_t seconds = from_environment("TRIVET_LOAD_SECONDS", 2);
  std::atomic<bool> over{false};
  std::vector<std::thread> load;
  for (int i = 0; i < 2; ++i)
    load.emplace_back([&] {
      volatile double sum = 0;
      while (!over) sum = sum + 1;
    });
  LaunchedJob job(8, {"--steps", "100000000", "--compute-ms", "5"});
  EXPECT_TRUE(job.prints("is connected", 8, milliseconds(30000))) << job.output();
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  EXPECT_EQ(job.lines_with("lost rank").size(), 0u) << job.output();
  EXPECT_EQ(job.lines_with("error").size(), 0u) << job.output();
  const size_t lines = job.lines_with(") has not ").size();
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  over = true;
  for (auto& thread : load) thread.join();
  std::printf("stop_soak: 8 ranks under load for %ld s: nobody lost, %zu lines about long waits\n", static_cast<long>(seconds),
              lines);
}

}  // namespace
}  // namespace trivet::test
