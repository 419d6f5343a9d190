#include "comm/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "comm/stopped_for_long.h"
#include "tests/comm/meeting.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

TEST(Rendezvous, GivesEveryRankTheSameTable) {
  constexpr int kRanks = 5;
  Meeting meeting(kRanks);
  std::vector<Joined> joined(kRanks);
  std::vector<std::function<void()>> bodies;
  for (int rank = 0; rank < kRanks; ++rank) {
    bodies.push_back([&, rank] { joined[rank] = rendezvous(meeting.options(rank)); });
  }
  for (const Outcome& outcome : meeting.run(bodies)) EXPECT_EQ(outcome.error, "");
  for (const Joined& one : joined) {
    ASSERT_EQ(one.members.size(), size_t{kRanks});
    EXPECT_EQ(one.job_id, "c0ffee");
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(one.members[rank].pid, 100 + rank);
  }
}

TEST(Rendezvous, ListsTheMissingRanksAtTheDeadlineToAll) {
  Meeting meeting(4);
  const auto join = [&](int rank) {
    return [&, rank] {
      auto options = meeting.options(rank);
      options.join_deadline = milliseconds(1000);
      rendezvous(std::move(options));
    };
  };
  for (const Outcome& outcome : meeting.run({join(0), join(2)})) {
    EXPECT_EQ(outcome.error, "rendezvous: 2 of 4 ranks did not join in 1 s: 1,3");
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
    Connection connection = visit(meeting.port());
    say(connection, encode(join_of(meeting_options(2, 4, 0).self)));
  };
  const auto outcomes =
      meeting.run({[&] { rendezvous(meeting.options(0)); }, [&] { rendezvous(meeting.options(1)); }, join_and_die});
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(outcomes[i].error, "rendezvous: rank 2 (a, pid 102) left during the rendezvous");
}

// One thing in which a candidate differs from rank 0, and how it is refused.
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
                 "this rank belongs to a different job than the rank 0 that answered (TRIVET_JOB_ID differs)", false},
        Mismatch{"AnotherEpoch", [](Member& m) { m.epoch = 3; }, ExitCode::Rendezvous,
                 "this rank belongs to start 3 of the job, rank 0 to start 0; TRIVET_EPOCH must be the same on all", false},
        Mismatch{"AnotherBuild", [](Member& m) { m.build = "9c8d"; }, ExitCode::VersionSkew,
                 "rank 1 (a, pid 101) runs build 9c8d, rank 0 (a, pid 100) runs build b; start the same program on all ranks",
                 true},
        Mismatch{"AnotherWorldSize", [](Member& m) { m.world_size = 5; }, ExitCode::Rendezvous,
                 "rank 1 (a, pid 101) expects 5 ranks, rank 0 expects 4; WORLD_SIZE must be the same on all", true},
        Mismatch{"ARankThatIsNone", [](Member& m) { m.rank = 4; }, ExitCode::Rendezvous, "rank 4 is not one of 0 to 3", false},
        Mismatch{"ARankThatIsHeld", [](Member& m) { m.rank = 2; }, ExitCode::Rendezvous,
                 "rank 2 is already held by pid 102 on host a", false}),
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

TEST(Rendezvous, WithoutASecretIsRefusedOnEveryAddress) {
  for (const char* address : {"192.0.2.1", "127.0.0.1"}) {
    for (int rank : {0, 1}) {
      auto options = meeting_options(rank, 2, 0);
      options.secret = Secret();
      options.address = address;
      const Outcome outcome = outcome_of([&] { rendezvous(std::move(options)); });
      EXPECT_THAT(outcome.error, HasSubstr("MASTER_ADDR: " + std::string(address))) << rank;
      EXPECT_THAT(outcome.error, HasSubstr("there is no secret, so anybody could join; set TRIVET_SECRET_FILE"));
      EXPECT_EQ(outcome.code, ExitCode::Usage);
    }
  }
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

// The first two connections are closed at once, as the real rank 0 closes the oldest connection during a flood.
TEST(Rendezvous, AJoinerThatIsSentAwayTriesAgain) {
  const Descriptor door = listen_on("127.0.0.1", 0);
  std::atomic<bool> joined{false};
  std::string error;
  std::thread joiner([&] {
    error = outcome_of([&] { rendezvous(meeting_options(1, 2, port_of(door))); }).error;
    joined = true;
  });
  const auto visitor = [&] {
    wait_readable(door.number(), in(5000));
    return accept_from(door).value();
  };
  visitor();  // before it proved anything
  {           // after its proof, before its Join is read
    const Connection second = take_visitor(door);
  }
  auto zero = meeting_options(0, 2, 0);
  zero.listener = Descriptor(::dup(door.number()));
  EXPECT_EQ(outcome_of([&] { rendezvous(std::move(zero)); }).error, "");
  joiner.join();
  EXPECT_EQ(error, "");
}

TEST(Rendezvous, AJoinerThatIsAlwaysSentAwaySaysSoAtItsDeadline) {
  const Descriptor door = listen_on("127.0.0.1", 0);
  std::atomic<bool> over{false};
  std::thread squatter([&] {
    while (!over) {
      wait_readable(door.number(), in(20));
      accept_from(door);
    }
  });
  auto options = meeting_options(1, 2, port_of(door));
  options.join_deadline = milliseconds(300);
  const Outcome outcome = outcome_of([&] { rendezvous(std::move(options)); });
  over = true;
  squatter.join();
  EXPECT_THAT(outcome.error, ::testing::MatchesRegex("rendezvous: 127.0.0.1:[0-9]+ closed the connection before it answered, "
                                                     "[0-9]+ times in 0.3 s; is it this job's rank 0, and is something "
                                                     "flooding its port.*"));
  EXPECT_EQ(outcome.code, ExitCode::Rendezvous);
}

// The flood opens more connections than rank 0 holds at its door, says nothing on them, and opens new ones all the time.
TEST(Rendezvous, SucceedsDuringAFloodOfConnections) {
  Meeting meeting(3);
  std::atomic<bool> over{false};
  std::atomic<int> connections{0};
  std::thread flood([&] {
    std::vector<Descriptor> open(400);
    for (size_t i = 0; !over; i = (i + 1) % open.size()) {
      try {
        open[i] = connect_to("127.0.0.1", meeting.port(), in(200));
        ++connections;
      } catch (const CommError&) {
        return;  // rank 0 has left
      }
    }
  });
  while (connections < 300) std::this_thread::sleep_for(milliseconds(1));
  const auto join = [&](int rank) {
    return [&, rank] {
      auto options = meeting.options(rank);
      options.join_deadline = milliseconds(20000);
      rendezvous(std::move(options));
    };
  };
  for (const Outcome& outcome : meeting.run({join(0), join(1), join(2)})) EXPECT_EQ(outcome.error, "");
  over = true;
  flood.join();
}

// The stopped process is made up: the test's `find_stopped` reports it.
// A listener with a visitor that cannot be accepted stays readable, so poll would return again and again.
TEST(Admission, LooksAwayForAMomentWhenTheProcessHasNoDescriptorLeft) {
  Descriptor listener = listen_on("127.0.0.1", 0);
  const Descriptor visitor = connect_to("127.0.0.1", port_of(listener), in(5000));
  Admission admission(std::move(listener), secret_of_test(), {});
  const auto watched = [&] {
    std::vector<pollfd> entries;
    admission.add_to(entries);
    return entries.size();
  };
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest = ::dup(visitor.number());
  ::close(lowest);
  rlimit none_left = before;
  none_left.rlim_cur = static_cast<rlim_t>(lowest);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none_left), 0);
  admission.step();
  const size_t without_descriptors = watched();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(without_descriptors, 0u);
  std::this_thread::sleep_for(milliseconds(150));
  EXPECT_EQ(watched(), 1u) << "the listener";
  admission.step();
  EXPECT_EQ(watched(), 2u) << "the listener and the visitor";
}

TEST(Rendezvous, EndsForAllWhenARankIsStoppedBeforeItJoins) {
  Meeting meeting(3);
  const auto join = [&](int rank) {
    return [&, rank] {
      auto options = meeting.options(rank);
      options.join_deadline = milliseconds(20000);
      options.find_stopped = [] { return std::vector<StoppedRank>{{2, 4711}}; };
      rendezvous(std::move(options));
    };
  };
  for (const Outcome& outcome : meeting.run({join(0), join(1)})) {
    EXPECT_EQ(outcome.error,
              "rendezvous: rank 2 (pid 4711) was stopped (SIGSTOP or Ctrl-Z) before it joined; continue it with kill -CONT "
              "4711, or end it, and start the job again");
    EXPECT_EQ(outcome.code, ExitCode::Rendezvous);
  }
}

TEST(Rendezvous, EndsWhenRankZeroIsStoppedBeforeItAnswers) {
  const Descriptor mute = listen_on("127.0.0.1", 0);
  auto options = meeting_options(1, 2, port_of(mute));
  options.join_deadline = milliseconds(20000);
  options.find_stopped = [] { return std::vector<StoppedRank>{{0, 4711}}; };
  EXPECT_THAT(outcome_of([&] { rendezvous(std::move(options)); }).error, HasSubstr("rank 0 (pid 4711) was stopped"));
}

TEST(Rendezvous, IsNotEndedByARankThatIsStoppedForAMoment) {
  Meeting meeting(2);
  std::atomic<int> looks{0};
  const auto join = [&](int rank) {
    return [&, rank] {
      auto options = meeting.options(rank);
      options.join_deadline = milliseconds(20000);
      options.find_stopped = [&] {
        return ++looks % 2 == 1 ? std::vector<StoppedRank>{{1, 4711}} : std::vector<StoppedRank>{};
      };
      if (rank == 1) {
        while (looks < 8) std::this_thread::sleep_for(milliseconds(5));
      }
      rendezvous(std::move(options));
    };
  };
  for (const Outcome& outcome : meeting.run({join(0), join(1)})) EXPECT_EQ(outcome.error, "");
}

TEST(StoppedForLong, IsAStopAtEveryLookForFourHundredMilliseconds) {
  const steady_clock::time_point start = steady_clock::now();
  const auto at = [&](int ms) { return start + milliseconds(ms); };
  StoppedForLong watch;
  EXPECT_FALSE(watch.look(true, at(0)));
  EXPECT_FALSE(watch.look(true, at(200)));
  EXPECT_FALSE(watch.look(true, at(399)));
  EXPECT_FALSE(watch.look(false, at(400))) << "it was continued";
  EXPECT_FALSE(watch.look(true, at(500)));
  EXPECT_FALSE(watch.look(true, at(700)));
  EXPECT_TRUE(watch.look(true, at(900)));
}

TEST(StoppedForLong, DoesNotCountTheTimeInWhichNobodyLooked) {
  const steady_clock::time_point start = steady_clock::now();
  StoppedForLong watch;
  EXPECT_FALSE(watch.look(true, start));
  EXPECT_FALSE(watch.look(true, start + milliseconds(60000))) << "the process that looks was stopped as well";
  EXPECT_TRUE(watch.look(true, start + milliseconds(60200)));
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
    out.resize(::recv(from.number(), out.data(), bytes, MSG_WAITALL));
    return out;
  };
  // An eavesdropper sits between an honest joiner and rank 0.
  auto [joiner, tap_joiner] = pair();
  auto [tap_zero, zero] = pair();
  Doorkeeper keeper(in(2000));
  std::thread honest([&joiner = joiner, &secret] { EXPECT_TRUE(prove(joiner, secret, in(2000)).keys); });
  const std::string hello = read_some(tap_joiner, 40);
  ::send(tap_zero.number(), hello.data(), hello.size(), 0);
  EXPECT_EQ(keeper.step(zero, secret, steady_clock::now()), Doorkeeper::State::Waiting);
  const std::string challenge = read_some(tap_zero, 64);
  ::send(tap_joiner.number(), challenge.data(), challenge.size(), 0);
  honest.join();
  const std::string proof = read_some(tap_joiner, 32);
  ::send(tap_zero.number(), proof.data(), proof.size(), 0);
  EXPECT_EQ(keeper.step(zero, secret, steady_clock::now()), Doorkeeper::State::Proven);
  // It sends the recorded bytes again.
  auto [replay, zero_again] = pair();
  Doorkeeper second(in(2000));
  ::send(replay.number(), hello.data(), hello.size(), 0);
  ::send(replay.number(), proof.data(), proof.size(), 0);
  EXPECT_EQ(second.step(zero_again, secret, steady_clock::now()), Doorkeeper::State::Refused);
  EXPECT_EQ(second.why(), "failed the key proof");
}

// What both ends of a connection have after the handshake.
struct Shaken {
  Proof joiner;
  std::optional<SessionKeys> zero;
  std::string zero_error;
};

// `change` may change each of the three messages on its way.
Shaken shake_hands(const std::function<void(int message, std::string&)>& change = {}) {
  const Secret secret("a secret of the test");
  int first[2], second[2];
  ::socketpair(AF_UNIX, SOCK_STREAM, 0, first);
  ::socketpair(AF_UNIX, SOCK_STREAM, 0, second);
  const Descriptor joiner(first[0]), tap_joiner(first[1]), tap_zero(second[0]), zero(second[1]);
  Shaken out;
  std::thread joining([&] {
    out.joiner = prove(joiner, secret, in(2000));
    ::shutdown(joiner.number(), SHUT_WR);
  });
  Doorkeeper keeper(in(2000));
  const auto carry = [&](int message, const Descriptor& from, const Descriptor& to, size_t bytes) {
    std::string text(bytes, '\0');
    text.resize(::recv(from.number(), text.data(), bytes, MSG_WAITALL));
    if (change) change(message, text);
    ::send(to.number(), text.data(), text.size(), MSG_NOSIGNAL);
    return text.size() == bytes;
  };
  carry(0, tap_joiner, tap_zero, 40);
  auto state = keeper.step(zero, secret, steady_clock::now());
  if (state == Doorkeeper::State::Waiting) {
    carry(1, tap_zero, tap_joiner, 64);
    if (carry(2, tap_joiner, tap_zero, 32)) state = keeper.step(zero, secret, steady_clock::now());
  }
  ::shutdown(tap_joiner.number(), SHUT_RDWR);  // if rank 0 has refused, the joiner waits no longer
  joining.join();
  if (state == Doorkeeper::State::Proven) out.zero = keeper.keys();
  out.zero_error = keeper.why();
  return out;
}

TEST(Handshake, GivesBothEndsTheSameKeysWhichNoOtherConnectionHas) {
  const Shaken one = shake_hands(), two = shake_hands();
  ASSERT_TRUE(one.joiner.keys && one.zero && two.joiner.keys && two.zero);
  EXPECT_EQ(one.joiner.keys->send, one.zero->receive);
  EXPECT_EQ(one.joiner.keys->receive, one.zero->send);
  const std::set<SessionKey> keys{one.joiner.keys->send, one.joiner.keys->receive, two.joiner.keys->send,
                                  two.joiner.keys->receive};
  EXPECT_EQ(keys.size(), 4u);
}

// Somebody on the wire puts another public key in the place of an end's own, to read what is sent later.
TEST(Handshake, ExposesAKeyThatWasExchangedOnItsWay) {
  const KeyPair own;
  const auto put = [&own](size_t at) {
    return [&own, at](std::string& text) { text.replace(at, own.public_key().size(), own.public_key()); };
  };
  const Shaken joiners = shake_hands([&](int message, std::string& text) {
    if (message == 0) put(8)(text);
  });
  EXPECT_EQ(joiners.joiner.state, Prover::State::Refused);
  EXPECT_FALSE(joiners.zero);
  const Shaken zeros = shake_hands([&](int message, std::string& text) {
    if (message == 1) put(0)(text);
  });
  EXPECT_EQ(zeros.joiner.state, Prover::State::Refused);
}

TEST(Handshake, RefusesAPublicKeyThatIsNotValid) {
  const Shaken shaken = shake_hands([](int message, std::string& text) {
    if (message == 0) text.replace(8, 32, std::string(32, '\0'));
  });
  EXPECT_EQ(shaken.zero_error, "sent a public key that is not valid");
  EXPECT_FALSE(KeyPair().keys_of_joiner(std::string(32, '\0')));
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

TEST(BuildDigest, IsTheLinkersId) { EXPECT_THAT(build_digest(), ::testing::MatchesRegex("3-[0-9a-f]+")); }

}  // namespace
}  // namespace trivet::comm
