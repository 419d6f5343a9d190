// Ranks get the signals that are sent to the launcher, and time to finish a step and to save.
#include <gmock/gmock.h>

#include <algorithm>

#include "comm/process_state.h"
#include "tests/launch/launched_job.h"

namespace trivet::test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

std::vector<std::string> command(std::vector<std::string> flags, const std::string& script) {
  std::vector<std::string> all{kTrivet, "launch", "--num_gpus", "2"};
  all.insert(all.end(), flags.begin(), flags.end());
  all.insert(all.end(), {"/bin/sh", "-c", script});
  return all;
}

// A rank that needs a moment to save when it is told to end.
const std::string kSaving =
    "trap 'echo saving; sleep 0.7; echo saved; exit 0' TERM INT; echo ready; while :; do sleep 0.02; done";

TEST(Signal, GivesRanksTimeToSave) {
  for (int signal : {SIGTERM, SIGINT}) {
    LaunchedProcess job(command({}, kSaving));
    ASSERT_TRUE(job.prints("ready", 2)) << job.output();
    ::kill(job.pid(), signal);
    EXPECT_EQ(job.wait(), 128 + signal);
    EXPECT_EQ(job.lines_with("saved").size(), 2u) << job.output();
    EXPECT_THAT(job.output(), EndsWith("trivet: error: launch: ended by signal " + std::to_string(signal) +
                                       (signal == SIGINT ? " (SIGINT)" : " (SIGTERM)") + ": all 2 ranks ended in time\n"));
  }
}

TEST(Signal, GivesTimeToRanksWhoseShellEndsAtOnce) {
  for (const char* wrapper : {"", "setsid "}) {
    LaunchedProcess job(command({}, wrapper + std::string("sh -c \"$SAVING\"; echo done")), {{"SAVING", kSaving}});
    ASSERT_TRUE(job.prints("ready", 2)) << job.output();
    ::kill(job.pid(), SIGTERM);
    EXPECT_EQ(job.wait(), 128 + SIGTERM);
    EXPECT_EQ(job.lines_with("saved").size(), 2u) << job.output();
  }
}

TEST(Signal, KillsRanksThatDoNotEndInTime) {
  LaunchedProcess job(command({"--shutdown-timeout", "1"}, "trap '' TERM; echo ready; while :; do sleep 0.02; done"));
  ASSERT_TRUE(job.prints("ready", 2)) << job.output();
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_THAT(job.output(), HasSubstr("killing the ranks that have not ended in 1 s (SIGKILL)"));
  EXPECT_THAT(job.output(),
              EndsWith("trivet: error: launch: ended by signal 15 (SIGTERM): ranks 0,1 had not ended 1 s later and "
                       "had to be killed; --shutdown-timeout gives more time\n"));
}

TEST(Signal, KillsTrainersThatDoNotEndInTimeUnderShellsThatDo) {
  const std::string deaf = "trap '' TERM; echo ready; while :; do sleep 0.02; done";
  LaunchedProcess job(command({"--shutdown-timeout", "1"}, "sh -c \"$DEAF\"; echo done"), {{"DEAF", deaf}});
  ASSERT_TRUE(job.prints("ready", 2)) << job.output();
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_THAT(
      job.output(),
      EndsWith("trivet: error: launch: ended by signal 15 (SIGTERM): what the ranks had started had not ended 1 s later "
               "and had to be killed; --shutdown-timeout gives more time\n"));
}

// Here the guardian is stopped in the meantime, so that it learns of the failure and the signal at once.
TEST(Signal, ThatComesJustAfterAFailureDoesNotHideIt) {
  LaunchedProcess job(command({}, "echo ready; test $RANK = 1 && { sleep 0.3; exit 19; }; sleep 1000"));
  ASSERT_TRUE(job.prints("ready", 2)) << job.output();
  const int guardian = job.guardian();
  ::kill(guardian, SIGSTOP);
  const std::vector<int> ranks = children_of(guardian);
  ASSERT_TRUE(becomes_true([&] {
    return std::ranges::any_of(ranks, [](int rank) {
      const auto found = comm::state_of_process(rank);
      return found && found->state == 'Z';
    });
  })) << job.output();
  ::kill(job.pid(), SIGTERM);
  std::this_thread::sleep_for(milliseconds(100));
  ::kill(guardian, SIGCONT);
  EXPECT_EQ(job.wait(), 19) << job.output();
}

// A guardian that stays stopped would hear no signal.
TEST(Signal, EndsAJobWhoseGuardianIsStopped) {
  LaunchedProcess job(command({}, "echo ready; sleep 1000"));
  ASSERT_TRUE(job.prints("ready", 2)) << job.output();
  ::kill(job.guardian(), SIGSTOP);
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.output();
  EXPECT_THAT(job.output(), HasSubstr("was stopped; it goes on"));
}

TEST(Signal, TwiceKillsAtOnce) {
  LaunchedProcess job(command({"--shutdown-timeout", "1000"}, "trap '' TERM; echo ready; while :; do sleep 0.02; done"));
  ASSERT_TRUE(job.prints("ready", 2)) << job.output();
  ::kill(job.pid(), SIGTERM);
  ASSERT_TRUE(job.prints("signal 15 received, passing it on to all ranks", 1)) << job.output();
  std::this_thread::sleep_for(milliseconds(400));
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_THAT(job.output(), EndsWith(": a second signal killed ranks 0,1\n"));
}

TEST(Signal, TwiceKillsTrainersUnderShells) {
  const std::string deaf = "trap '' TERM; echo ready; while :; do sleep 0.02; done";
  LaunchedProcess job(command({"--shutdown-timeout", "1000"}, "sh -c \"$DEAF\"; echo done"), {{"DEAF", deaf}});
  ASSERT_TRUE(job.prints("ready", 2)) << job.output();
  ::kill(job.pid(), SIGTERM);
  ASSERT_TRUE(job.prints("signal 15 received, passing it on to all ranks", 1)) << job.output();
  std::this_thread::sleep_for(milliseconds(400));
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_THAT(job.output(), EndsWith(": a second signal killed what the ranks had started\n"));
}

// timeout(1) sends its signal to the process and to its process group. On a machine that is too busy the two may arrive too far
// apart, so the test tries more than once.
TEST(Signal, ThatArrivesTwiceWithinAMomentCountsOnce) {
  size_t saved = 0;
  for (int attempt = 0; attempt < 5 && saved != 2; ++attempt) {
    LaunchedProcess job(command({}, kSaving));
    ASSERT_TRUE(job.prints("ready", 2)) << job.output();
    ::kill(job.pid(), SIGTERM);
    std::this_thread::sleep_for(milliseconds(30));  // two pending signals would be one
    ::kill(job.pid(), SIGTERM);
    EXPECT_EQ(job.wait(), 128 + SIGTERM);
    saved = job.lines_with("saved").size();
  }
  EXPECT_EQ(saved, 2u);
}

TEST(Signal, OfWarningReachesOnlyThoseThatHandleIt) {
  LaunchedProcess job(
      command({}, "sh -c \"trap 'kill \\$!; echo warned; exit 0' USR1; sleep 100 & echo ready; wait\"; echo done"));
  ASSERT_TRUE(job.prints("ready", 2)) << job.output();
  ::kill(job.pid(), SIGUSR1);
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_EQ(job.lines_with("warned").size(), 2u) << job.output();
  EXPECT_EQ(job.lines_with("done").size(), 2u) << job.output();
  EXPECT_THAT(job.output(),
              HasSubstr("signal 10 (SIGUSR1) received, passing it on to the 2 processes of the job that handle it"));
}

// The copy of the shell is as every child is before it runs its program, only for longer.
TEST(Signal, OfWarningDoesNotReachACopyOfTheParent) {
  LaunchedProcess job(command({},
                              "trap 'sleep 0.3; kill $!; echo warned; exit 0' USR1; "
                              "(trap 'echo copied' USR1; echo ready; while :; do sleep 0.02; done) & wait"));
  ASSERT_TRUE(job.prints("ready", 2)) << job.output();
  ::kill(job.pid(), SIGUSR1);
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_EQ(job.lines_with("warned").size(), 2u) << job.output();
  EXPECT_EQ(job.lines_with("copied").size(), 0u) << job.output();
}

TEST(Signal, OfWarningThatNobodyHandlesIsNotPassedOn) {
  LaunchedProcess job(command({}, "echo ready; sleep 1"));
  ASSERT_TRUE(job.prints("ready", 2)) << job.output();
  std::this_thread::sleep_for(milliseconds(200));  // a shell blocks signals while it starts a program, as if it handled them
  ::kill(job.pid(), SIGUSR2);
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_THAT(job.output(),
              HasSubstr("signal 12 (SIGUSR2) received, no process of the job handles it, so it is not passed on"));
}

TEST(Signal, ThatIsIgnoredAsUnderNohupIsNotObeyed) {
  LaunchedProcess job({"/bin/sh", "-c", "trap '' HUP; exec \"$@\"", "sh", kTrivet, "launch", "--num_gpus", "1", "/bin/sh", "-c",
                       "echo ready; sleep 1"});
  ASSERT_TRUE(job.prints("ready", 1)) << job.output();
  ::kill(job.pid(), SIGHUP);
  EXPECT_EQ(job.wait(), 0) << job.output();
}

TEST(Signal, AfterAFailureDoesNotHideIt) {
  LaunchedProcess job(command({}, "test $RANK = 1 && exit 19; trap '' TERM; echo ready; sleep 1000"));
  ASSERT_TRUE(job.prints("ended with exit code 19", 1)) << job.output();
  ::kill(job.pid(), SIGTERM);
  std::this_thread::sleep_for(milliseconds(400));
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 19);
  EXPECT_THAT(job.output(), EndsWith(") ended with exit code 19\n"));
}

}  // namespace
}  // namespace trivet::test
