// Tests whom a rank that waits for several others accuses, and when it does so.
#include "comm/counter_wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "comm/threads/thread_memory.h"
#include "tests/comm/ranks.h"

namespace trivet::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Rank 0 of three waits for ranks 1 and 2, whose world ranks are 11 and 12.
class CounterWaitTest : public testing::Test {
 protected:
  CounterWaitTest() { job_.state = std::make_shared<JobState>(); }
  Caught await() {
    const CounterWait wait({.group = "data", .world_ranks = {10, 11, 12}, .host = "here"}, job_, &disagreement_);
    SharedCounter* const counters[] = {&counters_[0], &counters_[1]};
    const int peers[] = {1, 2};
    return catch_comm_error([&] { wait.await(counters, peers, 1, OperationHeader{}); });
  }

  Disagreement disagreement_;
  std::array<SharedCounter, 2> counters_;
  JobView job_;
};

// A rank that has done its part may end while this rank still waits for another one.
TEST_F(CounterWaitTest, APeerThatEndsAfterItHasEnteredIsNotAccused) {
  counters_[0].advance();
  int asked = 0;
  job_.has_ended = [&](int world_rank) {
    if (world_rank == 12 && ++asked == 3) counters_[1].advance();  // late, but alive
    return world_rank == 11;
  };
  EXPECT_EQ(await().text, "");
  EXPECT_EQ(asked, 3);
  EXPECT_FALSE(job_.state->accused());
}

TEST_F(CounterWaitTest, APeerThatEndsBeforeItEntersIsAccused) {
  counters_[0].advance();
  job_.has_ended = [](int world_rank) { return world_rank >= 11; };
  const Caught caught = await();
  EXPECT_EQ(caught.code, ExitCode::PeerLost);
  EXPECT_THAT(caught.text, AllOf(HasSubstr("group \"data\" rank 0 (world rank 10, host here)"),
                                 HasSubstr("lost rank 12 (host here) during barrier: ended without entering barrier")));
  EXPECT_EQ(job_.state->accusation()->world_rank, 12);
}

TEST_F(CounterWaitTest, OnlyTheMissingAreNamedAtTheDeadline) {
  job_.deadline = std::chrono::milliseconds(1);
  counters_[0].advance();
  const Caught caught = await();
  EXPECT_EQ(caught.code, ExitCode::NoProgress);
  EXPECT_THAT(caught.text, HasSubstr("no progress: rank 2 (world rank 12) has not entered barrier of group \"data\""));
  EXPECT_EQ(job_.state->accusation()->world_rank, 12);
}

// What the job already knows takes precedence over what this rank would find out by itself.
TEST_F(CounterWaitTest, AnAccusationOfTheJobIsToldWithItsCause) {
  job_.state->accuse({12, "there", ExitCode::PeerLost, "eof"});
  job_.has_ended = [](int) { return true; };
  EXPECT_THAT(await().text, HasSubstr("lost rank 12 (host there) during barrier: eof"));
}

// Ranks 1 and 2 of the group are ranks 3 and 4 of a world of five.
TEST_F(CounterWaitTest, TheActivityOfTheWorldIsAskedAboutWorldRanks) {
  std::string line;
  const auto memory = allocate_board(WorldActivity::bytes(5));
  job_.activity = std::make_shared<WorldActivity>(memory, WorldActivity::Options{.world_rank = 2,
                                                                                 .world_size = 5,
                                                                                 .report_after = std::chrono::milliseconds(1),
                                                                                 .report = [&](const std::string& text) {
                                                                                   line = text;
                                                                                   counters_[1].advance();
                                                                                 }});
  counters_[0].advance();
  const CounterWait wait({.group = "data", .world_ranks = {2, 3, 4}, .host = "here"}, job_, &disagreement_);
  wait.await(counters_[1], 2, 1, OperationHeader{});
  EXPECT_THAT(line, AllOf(HasSubstr("rank 4 (host "), HasSubstr("barrier, number 0 of group \"data\"")));
}

}  // namespace
}  // namespace trivet::comm
