// What the launcher gives ranks, and how it ends ranks that do not end by themselves.
#include <gmock/gmock.h>

#include "tests/launch/launched_job.h"

namespace trivet::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string job(const std::string& script, int ranks, int expected_code, const LaunchedProcess::Variables& variables = {}) {
  LaunchedProcess process({kTrivet, "launch", "--num_gpus", std::to_string(ranks), "/bin/sh", "-c", script}, variables);
  EXPECT_EQ(process.wait(), expected_code) << process.output();
  return process.output();
}

// A launcher may itself be a rank of another job. Only rank 0 of its own job has a listening socket, and not the inherited one.
TEST(RanksOfAJob, OnlyTheFirstIsToldOfTheListeningSocket) {
  const std::string output = job("echo rank $RANK listens on ${TRIVET_LISTEN_FD-nothing}", 3, 0, {{"TRIVET_LISTEN_FD", "777"}});
  EXPECT_THAT(output, HasSubstr("rank 1 listens on nothing\n"));
  EXPECT_THAT(output, HasSubstr("rank 2 listens on nothing\n"));
  EXPECT_THAT(output, Not(HasSubstr("listens on 777")));
  EXPECT_THAT(output, Not(HasSubstr("rank 0 listens on nothing")));
}

// A stopped process cannot act on SIGTERM until it is continued.
TEST(RanksOfAJob, AStoppedOneIsContinuedToBeEnded) {
  const std::string output =
      job("if test $RANK = 0; then trap 'echo told to end; exit 0' TERM; echo $$ > $TMPDIR/zero; kill -STOP $$; "
          "while :; do sleep 0.05; done; fi; "
          "until grep -q '^State:.T' /proc/$(cat $TMPDIR/zero)/status; do sleep 0.02; done; exit 7",
          2, 7);
  EXPECT_THAT(output, HasSubstr("ending the ranks that still run (SIGTERM)"));
  EXPECT_THAT(output, HasSubstr("told to end\n"));
  EXPECT_THAT(output, Not(HasSubstr("SIGKILL")));
}

// If ranks only say that they lost another one and no rank is the cause, the first of them is named.
TEST(RanksOfAJob, TheFirstThatLostAPeerIsNamedWhereNoCauseIsKnown) {
  const std::string output =
      job("if test $RANK = 1; then echo $$ > $TMPDIR/one; exit 10; fi; "
          "until test -s $TMPDIR/one; do sleep 0.02; done; "
          "while kill -0 $(cat $TMPDIR/one); do sleep 0.02; done; exit 10",  // until the launcher has seen the end of rank 1
          3, 10);
  EXPECT_THAT(output, HasSubstr("trivet: error: launch: rank 1 (pid "));
}

}  // namespace
}  // namespace trivet::test
