#include "comm/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/comm/meeting.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

TimePoint in(int ms) { return steady_clock::now() + milliseconds(ms); }

TEST(Rendezvous, GivesEveryRankTheSameTable) {
  constexpr int kRanks = 5;
  Meeting meeting(kRanks);
  std::vector<Joined> joined(kRanks);
  std::vector<std::function<void()>> bodies;
  for (int rank = 0; rank < kRanks; ++rank) {
    bodies.push_back([&, rank] { joined[static_cast<size_t>(rank)] = rendezvous(meeting.options(rank)); });
  }
  for (const Outcome& outcome : meeting.run(bodies)) EXPECT_EQ(outcome.error, "");
  for (const Joined& one : joined) {
    ASSERT_EQ(one.members.size(), size_t{kRanks});
    EXPECT_EQ(one.job_id, "c0ffee");
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(one.members[static_cast<size_t>(rank)].pid, 100 + rank);
  }
}

TEST(Rendezvous, ListsTheMissingRanksAtTheDeadlineToAll) {
  Meeting meeting(4);
  const auto join = [&](int rank) {
    return [&, rank] {
      auto options = meeting.options(rank);
      options.join_deadline = milliseconds(300);
      rendezvous(std::move(options));
    };
  };
  for (const Outcome& outcome : meeting.run({join(0), join(2)})) {
    EXPECT_EQ(outcome.error, "rendezvous: 2 of 4 ranks did not join in 0.3 s: 1,3");
    EXPECT_EQ(outcome.code, ExitCode::Rendezvous);
  }
}

TEST(Rendezvous, SaysSoWhenRankZeroIsNotThere) {
  auto options = meeting_options(1, 2, 1);  // nobody listens on port 1
  options.join_deadline = milliseconds(200);
  const Outcome outcome = outcome_of([&] { rendezvous(std::move(options)); });
  EXPECT_THAT(outcome.error, HasSubstr("rank 0 does not answer at 127.0.0.1:1: Connection refused"));
  EXPECT_EQ(outcome.code, ExitCode::Rendezvous);
}

TEST(Rendezvous, RefusesASecondClaimantAndLeavesTheFirstAlone) {
  Meeting meeting(3);
  const auto join = [&](int rank, int pid, int after_ms) {
    return [&, rank, pid, after_ms] {
      std::this_thread::sleep_for(milliseconds(after_ms));
      auto options = meeting.options(rank);
      options.self.pid = pid;
      rendezvous(std::move(options));
    };
  };
  const auto outcomes = meeting.run({join(0, 100, 0), join(1, 101, 0), join(1, 999, 200), join(2, 102, 400)});
  EXPECT_EQ(outcomes[0].error, "");
  EXPECT_EQ(outcomes[1].error, "");
  EXPECT_EQ(outcomes[2].error, "rendezvous: rank 1 is already held by pid 101 on host a");
  EXPECT_EQ(outcomes[2].code, ExitCode::Rendezvous);
  EXPECT_EQ(outcomes[3].error, "");
}

TEST(Rendezvous, EndsForAllWhenARankDiesInIt) {
  Meeting meeting(4);  // rank 3 never comes
  const auto join_and_die = [&] {
    std::this_thread::sleep_for(milliseconds(100));
    Descriptor connection = connect_to("127.0.0.1", meeting.port(), in(1000));
    prove_to_rank_zero(connection, Secret("a secret of the test"), in(1000));
    Link link(std::move(connection));
    PayloadWriter request;
    write(request, meeting_options(2, 4, 0).self);
    link.send({FrameKind::Join, request.take()});
    link.flush();
  };
  const auto start = steady_clock::now();
  const auto outcomes =
      meeting.run({[&] { rendezvous(meeting.options(0)); }, [&] { rendezvous(meeting.options(1)); }, join_and_die});
  EXPECT_LT(steady_clock::now() - start, milliseconds(1000));
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(outcomes[i].error, "rendezvous: rank 2 (a, pid 102) left during the rendezvous");
}

// A candidate differs from rank 0 in one thing.
struct Mismatch {
  const char* name;
  void (*change)(Member&);
  ExitCode code;
  const char* reason;
  bool ends_the_job;
};

class Refusals : public ::testing::TestWithParam<Mismatch> {};

TEST_P(Refusals, NameWhatDiffers) {
  const Mismatch& mismatch = GetParam();
  std::vector<std::optional<Member>> held(4);
  held[0] = meeting_options(0, 4, 0).self;
  held[2] = meeting_options(2, 4, 0).self;
  Member candidate = meeting_options(1, 4, 0).self;
  EXPECT_FALSE(refusal_of(candidate, held));
  mismatch.change(candidate);
  const auto refusal = refusal_of(candidate, held);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason, mismatch.reason);
  EXPECT_EQ(refusal->code, mismatch.code);
  EXPECT_EQ(refusal->ends_the_job, mismatch.ends_the_job);
}

INSTANTIATE_TEST_SUITE_P(
    All, Refusals,
    ::testing::Values(
        Mismatch{"AnotherJob", [](Member& m) { m.job_id = "beef"; }, ExitCode::Rendezvous,
                 "this rank belongs to another job than the rank 0 that answered (TRIVET_JOB_ID differs)", false},
        Mismatch{"AnOldEpoch", [](Member& m) { m.epoch = -1; }, ExitCode::Rendezvous, "epoch -1 is over, now 0", false},
        Mismatch{"AnotherBuild", [](Member& m) { m.build = "9c8d"; }, ExitCode::VersionSkew,
                 "rank 1 (a, pid 101) runs build 9c8d, rank 0 (a, pid 100) build b; start the same program on all ranks", true},
        Mismatch{"AnotherWorldSize", [](Member& m) { m.world_size = 5; }, ExitCode::Rendezvous,
                 "rank 1 (a, pid 101) was told 5 ranks, rank 0 4; WORLD_SIZE must be the same on all", true},
        Mismatch{"ARankThatIsNone", [](Member& m) { m.rank = 4; }, ExitCode::Rendezvous, "rank 4 is not one of 0 to 3", false},
        Mismatch{"ARankThatIsHeld", [](Member& m) { m.rank = 2; }, ExitCode::Rendezvous,
                 "rank 2 is already held by pid 102 on host a", false},
        Mismatch{"AnotherHost", [](Member& m) { m.host = "b"; }, ExitCode::Rendezvous,
                 "rank 1 runs on host b, rank 0 on host a; ranks on several hosts are not implemented in this version: start "
                 "all of them "
                 "on one",
                 true}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Rendezvous, EndsForAllWhenProgramsDiffer) {
  Meeting meeting(3);
  const auto join = [&](int rank, const char* build) {
    return [&, rank, build] {
      auto options = meeting.options(rank);
      options.self.build = build;
      rendezvous(std::move(options));
    };
  };
  for (const Outcome& outcome : meeting.run({join(0, "b"), join(1, "other")})) {
    EXPECT_THAT(outcome.error, HasSubstr("rank 1 (a, pid 101) runs build other"));
    EXPECT_EQ(outcome.code, ExitCode::VersionSkew);
  }
}

TEST(Rendezvous, RefusesAWrongSecretOnBothSidesAndGoesOn) {
  Meeting meeting(2);
  const auto outcomes = meeting.run({[&] { rendezvous(meeting.options(0)); },
                                     [&] {
                                       auto options = meeting.options(1);
                                       options.secret = Secret("another secret, wrong");
                                       rendezvous(std::move(options));
                                     },
                                     [&] {
                                       std::this_thread::sleep_for(milliseconds(200));
                                       rendezvous(meeting.options(1));
                                     }});
  EXPECT_EQ(outcomes[0].error, "");
  EXPECT_THAT(outcomes[1].error, HasSubstr("failed the key proof: it does not know this job's secret"));
  EXPECT_EQ(outcomes[2].error, "");
}

TEST(Rendezvous, WithoutASecretServesLoopbackOnly) {
  auto options = meeting_options(0, 2, 0);
  options.secret = Secret();
  options.address = "192.0.2.1";
  const Outcome outcome = outcome_of([&] { rendezvous(std::move(options)); });
  EXPECT_THAT(outcome.error,
              HasSubstr("MASTER_ADDR: 192.0.2.1 is not this machine's loopback address, and there is no secret"));
  EXPECT_EQ(outcome.code, ExitCode::Usage);
}

TEST(Rendezvous, NamesTheHolderOfAPortInUse) {
  const Descriptor holder = listen_on("127.0.0.1", 0);
  const int port = port_of(holder);
  const Outcome outcome = outcome_of([&] { rendezvous(meeting_options(0, 2, port)); });
  EXPECT_EQ(outcome.code, ExitCode::Rendezvous);
  EXPECT_THAT(outcome.error,
              HasSubstr("port " + std::to_string(port) + " of 127.0.0.1 is held by pid " + std::to_string(::getpid())));
}

TEST(Rendezvous, IsNotDisturbedByStrangers) {
  Meeting meeting(2);
  std::string answer_to_stranger;
  const auto stranger = [&](std::string bytes) {
    return [&, bytes] {
      Descriptor connection = connect_to("127.0.0.1", meeting.port(), in(1000));
      for (size_t i = 0; i < bytes.size(); i += 7) {
        ::send(connection.number(), bytes.data() + i, std::min<size_t>(7, bytes.size() - i), MSG_NOSIGNAL);
      }
      char buffer[256];
      wait_readable(connection.number(), in(3000));
      ::recv(connection.number(), buffer, sizeof buffer, 0);
    };
  };
  const auto late_rank = [&] {
    std::this_thread::sleep_for(milliseconds(300));
    rendezvous(meeting.options(1));
  };
  const auto outcomes = meeting.run(
      {[&] { rendezvous(meeting.options(0)); }, late_rank, stranger("GET / HTTP/1.1\r\nHost: a\r\n\r\n and more of it"),
       stranger(std::string(5000, '\0')), stranger("TRIVET1\n" + std::string(500, 'x')), stranger("TRIV")});
  EXPECT_EQ(outcomes[0].error, "");
  EXPECT_EQ(outcomes[1].error, "");
}

TEST(Handshake, ReplayedFromARecordingIsRefused) {
  const Secret secret("a secret of the test");
  const auto pair = [] {
    int ends[2];
    ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    return std::pair(Descriptor(ends[0]), Descriptor(ends[1]));
  };
  const auto read_some = [](const Descriptor& from, size_t bytes) {
    std::string out(bytes, '\0');
    out.resize(static_cast<size_t>(::recv(from.number(), out.data(), bytes, MSG_WAITALL)));
    return out;
  };
  // An honest joiner, with a wire-tapper between it and rank 0.
  auto [joiner, tap_joiner] = pair();
  auto [tap_zero, zero] = pair();
  Doorkeeper keeper(in(2000));
  std::thread honest([&joiner = joiner, &secret] { prove_to_rank_zero(joiner, secret, in(2000)); });
  const std::string hello = read_some(tap_joiner, 32);
  ::send(tap_zero.number(), hello.data(), hello.size(), 0);
  EXPECT_EQ(keeper.step(zero, secret, steady_clock::now()), Doorkeeper::State::Waiting);
  const std::string challenge = read_some(tap_zero, 64);
  ::send(tap_joiner.number(), challenge.data(), challenge.size(), 0);
  honest.join();
  const std::string proof = read_some(tap_joiner, 32);
  ::send(tap_zero.number(), proof.data(), proof.size(), 0);
  EXPECT_EQ(keeper.step(zero, secret, steady_clock::now()), Doorkeeper::State::Proven);
  // The same bytes again.
  auto [replay, zero_again] = pair();
  Doorkeeper second(in(2000));
  ::send(replay.number(), hello.data(), hello.size(), 0);
  ::send(replay.number(), proof.data(), proof.size(), 0);
  EXPECT_EQ(second.step(zero_again, secret, steady_clock::now()), Doorkeeper::State::Refused);
  EXPECT_EQ(second.why(), "failed the key proof");
}

TEST(Handshake, EndsAtItsDeadline) {
  int ends[2];
  ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
  const Descriptor slow(ends[0]), zero(ends[1]);
  Doorkeeper keeper(in(1000));
  ::send(slow.number(), "TRIV", 4, 0);
  EXPECT_EQ(keeper.step(zero, Secret(), steady_clock::now()), Doorkeeper::State::Waiting);
  EXPECT_EQ(keeper.step(zero, Secret(), in(1001)), Doorkeeper::State::Refused);
  EXPECT_EQ(keeper.why(), "gave no key proof in 2 s");
}

TEST(BuildDigest, IsTheLinkersId) { EXPECT_THAT(build_digest(), ::testing::MatchesRegex("1-[0-9a-f]+")); }

}  // namespace
}  // namespace trivet::comm
