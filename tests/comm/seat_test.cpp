// Tests whom a rank that waits for several others accuses, and when it does so.
#include "comm/seat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/comm/ranks.h"

namespace trivet::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Rank 0 of three waits for ranks 1 and 2, whose world ranks are 11 and 12.
class SeatTest : public testing::Test {
 protected:
  SeatTest() {
    seat_.group = "data";
    seat_.world_ranks = {10, 11, 12};
    seat_.host = "here";
    seat_.job = std::make_shared<JobState>();
    seat_.verdict = &verdict_;
  }
  Caught await() {
    SharedCounter* const counters[] = {&counters_[0], &counters_[1]};
    const int peers[] = {1, 2};
    return catch_comm_error([&] { seat_.await(counters, peers, 1, OperationHeader{}); });
  }

  Verdict verdict_;
  std::array<SharedCounter, 2> counters_;
  Seat seat_;
};

// A rank that has done its part may end while this rank still waits for another one.
TEST_F(SeatTest, APeerThatEndsAfterItHasEnteredIsNotAccused) {
  counters_[0].advance();
  int asked = 0;
  seat_.has_ended = [&](int world_rank) {
    if (world_rank == 12 && ++asked == 3) counters_[1].advance();  // late, but alive
    return world_rank == 11;
  };
  EXPECT_EQ(await().text, "");
  EXPECT_EQ(asked, 3);
  EXPECT_FALSE(seat_.job->accused());
}

TEST_F(SeatTest, APeerThatEndsBeforeItEntersIsAccused) {
  counters_[0].advance();
  seat_.has_ended = [](int world_rank) { return world_rank >= 11; };
  const Caught caught = await();
  EXPECT_EQ(caught.code, ExitCode::PeerLost);
  EXPECT_THAT(caught.text, AllOf(HasSubstr("group \"data\" rank 0 (world rank 10, host here)"),
                                 HasSubstr("lost rank 12 (host here) during barrier: ended without entering barrier")));
  EXPECT_EQ(seat_.job->accusation()->world_rank, 12);
}

TEST_F(SeatTest, OnlyTheMissingAreNamedAtTheDeadline) {
  seat_.deadline = std::chrono::milliseconds(1);
  counters_[0].advance();
  const Caught caught = await();
  EXPECT_EQ(caught.code, ExitCode::NoProgress);
  EXPECT_THAT(caught.text, HasSubstr("no progress: rank 2 (world rank 12) has not entered barrier of group \"data\""));
  EXPECT_EQ(seat_.job->accusation()->world_rank, 12);
}

// What the job already knows takes precedence over what this rank would find out by itself.
TEST_F(SeatTest, AnAccusationOfTheJobIsToldWithItsCause) {
  seat_.job->accuse({12, "there", ExitCode::PeerLost, "eof"});
  seat_.has_ended = [](int) { return true; };
  EXPECT_THAT(await().text, HasSubstr("lost rank 12 (host there) during barrier: eof"));
}

}  // namespace
}  // namespace trivet::comm
