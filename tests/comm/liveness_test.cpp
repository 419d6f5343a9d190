#include "comm/liveness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/comm/live_job.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

TEST(Liveness, CloseIsNoLoss) {
  Job job(4);
  for (const Outcome& outcome : job.each([&](int rank) { job[rank].close(kUntilItHappens); })) EXPECT_EQ(outcome.error, "");
  for (int rank = 0; rank < 4; ++rank) EXPECT_FALSE(job.state(rank).accused());
}

TEST(Liveness, CloseIsNoLossWhenRanksComeAtDifferentTimes) {
  Job job(3);
  const auto outcomes = job.each([&](int rank) {
    std::this_thread::sleep_for(milliseconds(60 * rank));
    job[rank].close(kUntilItHappens);
    job.kill(rank);
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.error, "");
  for (int rank = 0; rank < 3; ++rank) EXPECT_FALSE(job.state(rank).accused());
}

TEST(Liveness, EndOfARankIsSeenByAllOthers) {
  Job job(4);
  job.kill(2);
  job.expect_accused(2, "e", {0, 1, 3});  // "eof", or "reset" when its last heartbeat crossed ours
}

TEST(Liveness, EndOfRankZeroIsSeenByAllOthers) {
  Job job(4);
  job.kill(0);
  job.expect_accused(0, "e", {1, 2, 3});
}

TEST(Liveness, AllNameTheFirstCulpritWhenOthersFollowIt) {
  for (int round = 0; round < 20; ++round) {
    Job job(5);
    job.kill(3);
    // A rank that notices leaves at once, as a program that throws does.
    job.each([&](int rank) {
      EXPECT_TRUE(job.state(rank).wait_for(kUntilItHappens));
      job.kill(rank);
    });
    job.expect_accused(3, "e", {0, 1, 2, 4});
  }
}

TEST(Liveness, AnAccusationOfOneRankReachesAll) {
  Job job(3);
  job[1].accuse({1, "a, pid 101", ExitCode::PeerLost, "abort: loss is not finite"});
  job.kill(1);
  job.expect_accused(1, "abort: loss is not finite", {0, 1, 2});
}

TEST(Liveness, AnOperationThatAccusesInTheJobStateIsGossiped) {
  Job job(3);
  job.state(2).accuse({1, "a, pid 101", ExitCode::NoProgress, "has not entered all_reduce"});
  job.expect_accused(1, "has not entered all_reduce", {0, 1, 2});
  EXPECT_EQ(job.state(0).accusation()->code, ExitCode::NoProgress);
}

// Other ranks may go on at once, so their first messages come together with the table.
TEST(Liveness, KnowsWhatOthersHaveSetBeforeItTookOver) {
  const Descriptor door = listen_on("127.0.0.1", 0);
  Connection zero;
  std::thread root([&] {
    zero = take_visitor(door);
    hear(zero);
    for (const Frame& frame : {encode(control::Welcome{member_of(0, 2)}), table_frame(2), encode(control::Set{"key", "value"})})
      zero.send(frame);
    zero.flush();
  });
  Joined joined = rendezvous(meeting_options(1, 2, port_of(door)));
  root.join();
  std::this_thread::sleep_for(milliseconds(50));
  Liveness one(std::move(joined), 1, LivenessOptions{}, std::make_shared<JobState>());
  EXPECT_EQ(one.store().get("key", kUntilItHappens), "value");
}

TEST(Liveness, MeetReturnsWhenTheLastOneComes) {
  Job job(3);
  std::atomic<int> arrived{0};
  const auto outcomes = job.each([&](int rank) {
    for (int round = 0; round < 5; ++round) {
      ++arrived;
      job[rank].meet("round " + std::to_string(round), kUntilItHappens);
      EXPECT_GE(arrived, 3 * (round + 1));
    }
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.error, "");
}

TEST(Liveness, MeetNamesWhoDoesNotCome) {
  Job job(4);
  const auto outcomes = job.each([&](int rank) {
    if (rank == 0 || rank == 3) job[rank].meet("there", milliseconds(500));
  });
  EXPECT_EQ(outcomes[0].error, "ranks 1,2 are alive but have not reached \"there\" within 0.5 s: computing or stuck");
  EXPECT_EQ(outcomes[0].code, ExitCode::NoProgress);
  EXPECT_EQ(outcomes[3].error, outcomes[0].error);
}

// It answers its heartbeats, so that only what it does not read tells it from a rank that is well.
TEST(Liveness, ARankThatDoesNotReadIsLostBeforeItsMessagesFillTheMemory) {
  Meeting meeting(2);
  auto job = std::make_shared<JobState>();
  std::unique_ptr<Liveness> zero;
  Connection deaf;
  meeting.run({[&] { zero = std::make_unique<Liveness>(rendezvous(meeting.options(0)), 0, LivenessOptions{}, job); },
               [&] { deaf = join_by_hand(1, 2, meeting.port()); }});
  const std::string meeting_of_kilobyte(1000, 'm');
  for (int i = 0; i < 200000 && !job->accused(); ++i) {
    deaf.send(encode(control::Ask{meeting_of_kilobyte}));
    while (deaf.flush(), deaf.has_unsent() && !job->accused()) std::this_thread::sleep_for(milliseconds(1));
  }
  ASSERT_TRUE(job->wait_for(kUntilItHappens));
  EXPECT_EQ(job->accusation()->world_rank, 1);
  EXPECT_EQ(job->accusation()->cause, "does not read what it is sent");
}

TEST(Liveness, MeetEndsWhenARankIsLost) {
  Job job(3);
  const auto outcomes = job.each([&](int rank) {
    if (rank == 1) return job.kill(1);
    job[rank].meet("there", kUntilItHappens);
  });
  for (int rank : {0, 2}) {
    EXPECT_THAT(outcomes[rank].error, HasSubstr("lost rank 1 (host a, pid 101) during there: "));
    EXPECT_EQ(outcomes[rank].code, ExitCode::PeerLost);
  }
}

TEST(Liveness, WhoJoinsLateIsToldWhoHoldsTheRank) {
  Meeting meeting(2);
  const int port = meeting.port();
  auto job = std::make_shared<JobState>();
  std::unique_ptr<Liveness> zero;
  Joined one;
  meeting.run({[&] { zero = std::make_unique<Liveness>(rendezvous(meeting.options(0)), 0, LivenessOptions{}, job); },
               [&] { one = rendezvous(meeting.options(1)); }});
  const Outcome late = outcome_of([&] { rendezvous(meeting_options(1, 2, port)); });
  EXPECT_EQ(late.error, "rendezvous: rank 1 is already held by pid 101 on host a");
  auto stale = meeting_options(1, 2, port);
  stale.self.epoch = 3;
  EXPECT_EQ(outcome_of([&] { rendezvous(std::move(stale)); }).error,
            "rendezvous: this rank belongs to start 3 of the job, rank 0 to start 0; TRIVET_EPOCH must be the same on all");
  EXPECT_FALSE(job->accused());
}

TEST(Liveness, SilenceIsALossAtTheDeadlineAndNotBefore) {
  Meeting meeting(2);
  auto job = std::make_shared<JobState>();
  std::unique_ptr<Liveness> zero;
  Joined mute;  // has joined, holds its connection, says nothing
  auto options = meeting.options(0);
  options.silence = milliseconds(300);
  const auto start = steady_clock::now();
  meeting.run({[&] { zero = std::make_unique<Liveness>(rendezvous(std::move(options)), 0, LivenessOptions{}, job); },
               [&] { mute = rendezvous(meeting.options(1)); }});
  ASSERT_TRUE(job->wait_for(kUntilItHappens));
  EXPECT_GE(steady_clock::now() - start, milliseconds(300));
  EXPECT_EQ(job->accusation()->world_rank, 1);
  EXPECT_EQ(job->accusation()->cause, "silent");
}

// If rank 0 is stopped, ranks on its host see it and leave, and others then find that connections to those ranks have ended.
TEST(Liveness, NobodyIsToBlameForAnEndedConnectionWhileRankZeroIsNotHeard) {
  Meeting meeting(2);
  auto job = std::make_shared<JobState>();
  Joined mute;
  std::unique_ptr<Liveness> one;
  auto options = meeting.options(1);
  options.silence = milliseconds(500);
  meeting.run({[&] { mute = rendezvous(meeting.options(0)); },
               [&] { one = std::make_unique<Liveness>(rendezvous(std::move(options)), 1, LivenessOptions{}, job); }});
  ASSERT_TRUE(job->wait_for_accusation(milliseconds(100)));
  EXPECT_EQ(job->accusation()->world_rank, 0);
  EXPECT_EQ(job->accusation()->cause, "silent");
}

// Otherwise it would name a rank that has left because of it, and others believe what rank 0 says.
TEST(Liveness, ARankZeroThatWasStoppedAndGoesOnNamesItself) {
  Meeting meeting(3);
  std::vector<std::shared_ptr<JobState>> states(3);
  std::vector<std::unique_ptr<Liveness>> ranks(3);
  Joined stopped;
  std::vector<std::function<void()>> bodies{[&] { stopped = rendezvous(meeting.options(0)); }};
  for (int rank : {1, 2}) {
    bodies.push_back([&, rank] {
      auto options = meeting.options(rank);
      options.silence = milliseconds(rank == 1 ? 300 : 60000);
      states[rank] = std::make_shared<JobState>();
      ranks[rank] = std::make_unique<Liveness>(rendezvous(std::move(options)), rank, LivenessOptions{}, states[rank]);
    });
  }
  for (const Outcome& outcome : meeting.run(bodies)) ASSERT_EQ(outcome.error, "");
  ASSERT_TRUE(states[1]->wait_for(kUntilItHappens));
  ranks[1].reset();
  states[0] = std::make_shared<JobState>();
  ranks[0] = std::make_unique<Liveness>(std::move(stopped), 0, LivenessOptions{}, states[0]);
  for (int rank : {0, 2}) {
    ASSERT_TRUE(states[rank]->wait_for(kUntilItHappens)) << "rank " << rank;
    EXPECT_EQ(states[rank]->accusation()->world_rank, 0) << "rank " << rank;
    EXPECT_EQ(states[rank]->accusation()->cause, "silent") << "rank " << rank;
  }
}

TEST(Liveness, APeerMayBeBlamedForAnEndedConnectionOnceRankZeroIsHeardAgain) {
  Job job(2);
  EXPECT_FALSE(job.state(1).wait_for_accusation(milliseconds(100)));
  EXPECT_FALSE(job.state(0).wait_for_accusation(milliseconds(100)));
}

TEST(Liveness, HeartbeatsKeepAnIdleJobAlive) {
  Job job(3, milliseconds(1000));
  std::this_thread::sleep_for(milliseconds(1500));
  for (int rank = 0; rank < 3; ++rank) EXPECT_FALSE(job.state(rank).accused());
}

TEST(Liveness, BytesThatAreNoMessageAccuseTheirSender) {
  Meeting meeting(2);
  auto job = std::make_shared<JobState>();
  std::unique_ptr<Liveness> zero;
  Connection bad;
  meeting.run({[&] { zero = std::make_unique<Liveness>(rendezvous(meeting.options(0)), 0, LivenessOptions{}, job); },
               [&] { bad = join_by_hand(1, 2, meeting.port()); }});
  ::send(bad.number(), "\xff\xff\xff\xff\xff\xff", 6, 0);
  ASSERT_TRUE(job->wait_for(kUntilItHappens));
  EXPECT_EQ(job->accusation()->world_rank, 1);
  EXPECT_THAT(job->accusation()->cause, HasSubstr("sent bytes that are not encrypted with the key of this connection"));
}

TEST(Liveness, CallsOnLostAfterTheGraceOnly) {
  Meeting meeting(2);
  auto job = std::make_shared<JobState>();
  std::unique_ptr<Liveness> zero;
  Joined one;
  std::atomic<int> calls{0};
  std::atomic<steady_clock::time_point> called_at;
  LivenessOptions options;
  options.notice_grace = milliseconds(200);
  options.on_lost = [&](const Accusation& accusation) {
    EXPECT_EQ(accusation.world_rank, 1);
    called_at = steady_clock::now();
    ++calls;
  };
  meeting.run({[&] { zero = std::make_unique<Liveness>(rendezvous(meeting.options(0)), 0, options, job); },
               [&] { one = rendezvous(meeting.options(1)); }});
  const auto lost_at = steady_clock::now();
  one = {};
  ASSERT_TRUE(job->wait_for(kUntilItHappens));
  while (calls == 0 && steady_clock::now() - lost_at < kUntilItHappens) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_GE(called_at.load() - lost_at, milliseconds(200));
  std::this_thread::sleep_for(milliseconds(250));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace trivet::comm
