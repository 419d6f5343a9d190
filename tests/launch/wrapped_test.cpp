// Ranks run under shells and in sessions of their own. Nothing that a job has started outlives the job or its launcher, however
// they end.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdio>
#include <random>

#include "cli/launch/processes.h"
#include "tests/launch/launched_job.h"
#include "tests/support/temporary_folder.h"

namespace trivet::test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// A job whose ranks run a shell command. $RANKS_PROGRAM is the program that communicates.
class WrappedJob : public LaunchedProcess {
 public:
  explicit WrappedJob(const std::string& command, int ranks = 2)
      : LaunchedProcess({kTrivet, "launch", "--num_gpus", std::to_string(ranks), "/bin/sh", "-c", command}, variables()),
        mark_(std::to_string(::getpid()) + "." + std::to_string(count_)) {}
  std::vector<int> processes() const { return processes_with(kMark, mark_); }
  bool nothing_is_left() const {
    return becomes_true([&] { return processes().empty(); }) || (ADD_FAILURE() << output(), false);
  }

 private:
  static Variables variables() {
    return {{kMark, std::to_string(::getpid()) + "." + std::to_string(++count_)},
            {"RANKS_PROGRAM", kRankProgram + " --steps 1000000 --compute-ms 5"}};
  }
  static inline int count_ = 0;
  std::string mark_;
};

struct Wrapper {
  const char* name;
  const char* command;
};

const Wrapper kWrappers[] = {
    {"Shell", "$RANKS_PROGRAM; echo done"},
    {"Session", "setsid $RANKS_PROGRAM; echo done"},
    {"SessionInTheBackground", "setsid $RANKS_PROGRAM & wait"},
    {"SessionOfAnOrphan", "(setsid $RANKS_PROGRAM &) ; sleep 1000"},
    {"NeighbourInAnotherSession", "setsid sleep 1000 & exec $RANKS_PROGRAM"},
};

class Wrapped : public ::testing::TestWithParam<Wrapper> {};

TEST_P(Wrapped, EndsWithAKilledLauncher) {
  WrappedJob job(GetParam().command);
  ASSERT_TRUE(job.prints("is connected", 2)) << job.output();
  ::kill(job.pid(), SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_TRUE(job.nothing_is_left());
}

TEST_P(Wrapped, EndsWithAKilledGuardian) {
  WrappedJob job(GetParam().command);
  ASSERT_TRUE(job.prints("is connected", 2)) << job.output();
  const int guardian = job.guardian();
  ::kill(guardian, SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_THAT(job.output(), HasSubstr("trivet: error: launch: the process that watches over the ranks (pid " +
                                      std::to_string(guardian) + ") was killed by signal 9 (SIGKILL); all ranks were killed"));
  EXPECT_TRUE(job.nothing_is_left());
}

INSTANTIATE_TEST_SUITE_P(All, Wrapped, ::testing::ValuesIn(kWrappers),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(WrappedRank, EndsItselfWhenLauncherAndGuardianAreKilledAtOnce) {
  WrappedJob job("setsid $RANKS_PROGRAM; echo done", 1);
  ASSERT_TRUE(job.prints("is connected", 1)) << job.output();
  const int guardian = job.guardian();
  // Nothing acts in between: the launcher is stopped. (A stopped guardian would be continued by the system, when its group lost
  // the launcher.)
  ::kill(job.pid(), SIGSTOP);
  ASSERT_TRUE(becomes_true([&] { return cli::is_stopped(job.pid()); }));
  ::kill(guardian, SIGKILL);
  ::kill(job.pid(), SIGKILL);
  EXPECT_TRUE(job.prints("the launcher (trivet launch) has died", 1)) << job.output();
  EXPECT_TRUE(job.nothing_is_left());
}

TEST(FailedJob, LeavesNothingInOtherSessions) {
  WrappedJob job("setsid sleep 1000 & sleep 0.2; test $RANK = 1 && exit 3; sleep 1000");
  EXPECT_EQ(job.wait(), 3);
  EXPECT_TRUE(job.processes().empty()) << job.output();
}

TEST(FinishedJob, LeavesNothingInOtherSessionsAndSaysWhatItKilled) {
  WrappedJob job("setsid sleep 1000 & sleep 0.2");
  EXPECT_EQ(job.wait(), 0);
  EXPECT_TRUE(job.processes().empty()) << job.output();
  EXPECT_EQ(job.lines_with("killing what the ranks have left running: pid ").size(), 1u) << job.output();
  EXPECT_THAT(job.output(), HasSubstr(" (sleep), pid "));
}

// A shell that starts something and then becomes the launcher leaves it children that are not part of the job.
TEST(FinishedJob, LeavesThoseAloneThatTheLauncherHadAsChildrenBefore) {
  const std::string mark = "children before " + std::to_string(::getpid());
  LaunchedProcess job({"/bin/bash", "-c", "sleep 1000 & (sleep 1000; true) & exec \"$@\"", "bash", kTrivet, "launch",
                       "--num_gpus", "1", "/bin/sh", "-c", "setsid sleep 1000 & exit 0"},
                      {{kMark, mark}});
  const auto start = steady_clock::now();
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_LT(ms_since(start), 100000) << "it waits for them";
  const std::vector<int> left = processes_with(kMark, mark);
  EXPECT_EQ(left.size(), 3u) << "sleep, a shell, and its sleep";
  for (int pid : left) ::kill(pid, SIGKILL);
}

// A setuid copy of setpriv stands for sudo: it has the rights of root, and the launcher has none.
TEST(FinishedJob, DoesNotWaitForProcessesOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make such a program";
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::owner_all | fs::perms::others_exec | fs::perms::group_exec);
  const std::string setpriv = folder.at("setpriv"), mark = "other user " + std::to_string(::getpid());
  fs::copy_file("/usr/bin/setpriv", setpriv);
  ASSERT_EQ(::chmod(setpriv.c_str(), 04755), 0);
  Descriptor ended;
  int code = -1;
  {
    LaunchedProcess job(
        {"/usr/bin/setpriv", "--reuid", "65533", "--clear-groups", kTrivet, "launch", "--num_gpus", "2", "/bin/sh", "-c",
         "test $RANK = 1 && " + setpriv + " --reuid 65534 --clear-groups sleep 1000 & sleep 0.5; echo last"},
        {{kMark, mark}});
    ended = watch_process(job.pid());
    const bool in_time = ends_within(ended, milliseconds(8000));
    const std::vector<int> left = processes_with(kMark, mark);
    for (int pid : left)
      if (pid != job.pid()) ::kill(pid, SIGKILL);
    code = job.wait();
    if (code == 126 || code == 127) GTEST_SKIP() << "another user cannot start " << kTrivet << ": " << job.output();
    if (job.output().find("setpriv: ") != std::string::npos) GTEST_SKIP() << "programs there have no rights: " << job.output();
    EXPECT_TRUE(in_time) << job.output();
    EXPECT_EQ(job.lines_with("these cannot be killed: pid ").size(), 1u) << job.output();
    EXPECT_EQ(job.lines_with("last").size(), 2u) << job.output();
  }
  EXPECT_EQ(code, 0);
}

// The shells of the ranks exit with code 0 all the same.
TEST(Loss, ThatShellsHideIsTheLaunchersExitCode) {
  LaunchedProcess job({kTrivet, "launch", "--num_gpus", "2", "/bin/sh", "-c",
                       kRankProgram + " --steps 5 --exit-rank 1 --exit-code 16 --abort nan; echo done"});
  EXPECT_EQ(job.wait(), 10) << job.output();
  EXPECT_THAT(job.last_line(), HasSubstr("trivet: error: launch: rank 1 (pid "));
  EXPECT_THAT(job.last_line(), HasSubstr(") was lost, abort: nan: it ended with exit code 0"));
}

enum class Victim { Launcher, Guardian, Both, Wrapper, Trainer };
constexpr const char* kNames[] = {"launcher", "guardian", "launcher and guardian", "wrapper", "trainer"};

// The pid of the victim, or 0 if it does not exist (yet).
int find_victim(const WrappedJob& job, Victim victim) {
  if (victim == Victim::Launcher) return job.pid();
  if (victim != Victim::Trainer && victim != Victim::Wrapper) return job.guardian();
  for (int pid : job.processes()) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
    std::string program;
    std::getline(file, program, '\0');
    if (program == (victim == Victim::Trainer ? kRankProgram : "/bin/sh")) return pid;
  }
  return 0;
}

void kill_victim(const WrappedJob& job, int pid, Victim victim) {
  if (victim == Victim::Both) {
    ::kill(pid, SIGSTOP);
    ::kill(job.pid(), SIGKILL);
  }
  ::kill(pid, SIGKILL);
}

// TRIVET_KILLS and TRIVET_SEED set how many are killed and which (scripts/kill_soak). Half of the kills come while the job
// starts.
TEST(KillMatrix, LeavesNothingWhoeverIsKilled) {
  const int64_t kills = from_environment("TRIVET_KILLS", 10), seed = from_environment("TRIVET_SEED", 1);
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  std::vector<double> times;
  for (int64_t kill = 0; kill < kills && !testing::Test::HasFailure(); ++kill) {
    const Wrapper& wrapper = kWrappers[random() % 3];
    const Victim victim{static_cast<int>(kill % 5)};
    const bool at_the_start = random() % 2 == 0;
    const milliseconds moment(random() % 60);
    SCOPED_TRACE("kill " + std::to_string(kill) + " of seed " + std::to_string(seed) + ": " + kNames[kill % 5] +
                 " of a job in " + wrapper.name + (at_the_start ? " at the start" : ""));
    WrappedJob job(wrapper.command);
    if (!at_the_start) {
      ASSERT_TRUE(job.prints("is connected", 2)) << job.output();
    }
    std::this_thread::sleep_for(moment);
    int pid = 0;
    ASSERT_TRUE(becomes_true([&] { return (pid = find_victim(job, victim)) != 0; })) << job.output();
    const auto start = steady_clock::now();
    kill_victim(job, pid, victim);
    const int code = job.wait();
    // The shell of a killed trainer exits with code 0. The other trainer tells the launcher which rank it lost, if it had found
    // it.
    if (victim != Victim::Trainer) {
      EXPECT_EQ(code, 128 + SIGKILL) << job.output();
    } else if (at_the_start) {
      EXPECT_THAT(code, AnyOf(0, 10)) << job.output();
    } else {
      EXPECT_EQ(code, 10) << job.output();
    }
    EXPECT_TRUE(job.nothing_is_left());
    times.push_back(ms_since(start));
  }
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  std::printf("kill matrix: seed %ld, %zu kills, from kill until nothing is left: p50 %.0f ms, p99 %.0f ms, max %.0f ms\n",
              static_cast<long>(seed), times.size(), times[times.size() / 2],
              times[static_cast<size_t>(0.99 * static_cast<double>(times.size() - 1))], times.back());
}

TEST(Guardian, IsNotFoundByTheNameOfTheLauncher) {
  WrappedJob job("sleep 1000");
  ASSERT_TRUE(becomes_true([&] { return job.processes().size() >= 4; })) << job.output();
  std::ifstream file("/proc/" + std::to_string(job.guardian()) + "/cmdline");
  std::string line;
  std::getline(file, line, '\0');
  EXPECT_EQ(line, "rank-guardian of pid " + std::to_string(job.pid()));
}

}  // namespace
}  // namespace trivet::test
