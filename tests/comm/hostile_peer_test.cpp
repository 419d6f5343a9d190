// A hostile peer knows the secret and sends what no rank would send: as a false rank 0 and as a false member, before and
// after the table. The real reader must end with an error that names the sender, and with an exit code that is not 0.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "comm/liveness.h"
#include "tests/comm/meeting.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Frame with_code(FrameKind kind, int64_t code) {
  PayloadWriter out;
  if (kind == FrameKind::Accuse) out.number(1);
  if (kind == FrameKind::Refuse) out.number(-1).number(0);
  return {kind, out.number(code).text("because").take()};
}

Frame welcome_frame() { return encode(control::Welcome{member_of(0, 2)}); }

struct Attack {
  const char* name;
  std::vector<Frame> frames;
  const char* message;
};

std::vector<Attack> attacks_on_a_joiner() {
  const Frame welcome = welcome_frame();
  return {
      {"refusal with code 0", {with_code(FrameKind::Refuse, 0)}, "sent a Refuse with exit code 0, which is not a failure code"},
      {"refusal with code 256", {with_code(FrameKind::Refuse, 256)}, "sent a Refuse with exit code 256"},
      {"refusal after the welcome", {welcome, with_code(FrameKind::Refuse, 0)}, "sent a Refuse with exit code 0"},
      {"refusal without text", {Frame{FrameKind::Refuse, ""}}, "sent a Refuse that is cut short"},
      {"heartbeat", {encode(control::Heartbeat{})}, "sent a Heartbeat before all ranks had joined"},
      {"a key", {welcome, encode(control::Set{"k", "v"})}, "sent a Set before all ranks had joined"},
      {"empty welcome", {Frame{FrameKind::Welcome, ""}}, "sent a Welcome that is cut short"},
      {"two welcomes", {welcome, welcome}, "sent a Welcome before all ranks had joined"},
      {"table of one", {welcome, table_frame(1)}, "sent an Announce whose number of ranks is 1"},
      {"table of three", {welcome, table_frame(3)}, "sent an Announce of 3 ranks; this rank expects 2"},
      {"another in this rank's place",
       {welcome, table_frame(2, [](auto& seats) { seats[1].member.pid = 999; })},
       "sent an Announce in which this rank is a, pid 999 instead of a, pid 101"},
      {"another job", {welcome, table_frame(2, {}, "beef")}, "sent an Announce of a different job (TRIVET_JOB_ID differs)"},
      {"another build for all",
       {welcome, table_frame(2, [](auto& seats) { seats[0].member.build = "x"; })},
       "sent an Announce in which this rank is"},
      {"empty table", {welcome, Frame{FrameKind::Announce, ""}}, "sent an Announce that is cut short"}};
}

// Plays rank 0's side of the handshake, then sends the frames of the attack.
void play_rank_zero(const Descriptor& door, const std::vector<Frame>& frames) {
  Connection connection = take_visitor(door);
  for (const Frame& frame : frames) connection.send(frame);
  connection.flush();
  wait_for_end(connection);
}

TEST(HostileRankZero, EndsAJoinerWithAnErrorThatSaysWhatWasSent) {
  for (const Attack& attack : attacks_on_a_joiner()) {
    SCOPED_TRACE(attack.name);
    const Descriptor door = listen_on("127.0.0.1", 0);
    std::thread zero([&] { play_rank_zero(door, attack.frames); });
    const Outcome outcome = outcome_of([&] { rendezvous(meeting_options(1, 2, port_of(door))); });
    zero.join();
    EXPECT_EQ(outcome.code, ExitCode::Rendezvous);
    EXPECT_THAT(outcome.error, AllOf(StartsWith("rendezvous: rank 0 at 127.0.0.1:"), HasSubstr(attack.message)));
  }
}

TEST(HostileRankZero, ThatSendsAByteNowAndThenIsNotWaitedForLongerThanTheDeadline) {
  const Descriptor door = listen_on("127.0.0.1", 0);
  std::atomic<bool> over{false};
  std::thread zero([&] {
    wait_readable(door.number(), in(5000));
    auto visitor = accept_from(door);
    ASSERT_TRUE(visitor);
    Doorkeeper keeper(in(5000));
    while (keeper.step(*visitor, secret_of_test(), steady_clock::now()) == Doorkeeper::State::Waiting)
      wait_readable(visitor->number(), in(10));
    std::string table;
    RecordCipher(keeper.keys()).encrypt(encode(Frame{FrameKind::Set, std::string(100000, 'x')}), table);
    for (size_t at = 0; !over && at < table.size(); ++at) {
      ::send(visitor->number(), &table[at], 1, MSG_NOSIGNAL);
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  auto options = meeting_options(1, 2, port_of(door));
  options.join_deadline = milliseconds(200);  // joiners wait 3 s longer than rank 0
  const auto start = steady_clock::now();
  const Outcome outcome = outcome_of([&] { rendezvous(std::move(options)); });
  EXPECT_LT(steady_clock::now() - start, milliseconds(60000)) << "all bytes would take 100 s";
  over = true;
  zero.join();
  EXPECT_THAT(outcome.error, HasSubstr("did not answer in time"));
}

// A member that has proven that it knows the secret is still not trusted in what it sends.
TEST(HostileMember, IsSentAwayAtTheDoorAndTheOthersMeet) {
  const Frame join = encode(join_of(member_of(1, 2)));
  Member nobody = member_of(1, 2), far = member_of(1, 2);
  nobody.pid = 0;
  far.rank = 1 << 20;
  const std::vector<Frame> attacks{encode(control::Heartbeat{}),
                                   table_frame(2),
                                   with_code(FrameKind::Accuse, 0),
                                   with_code(FrameKind::Refuse, 0),
                                   encode(control::Attach{7, std::nullopt}),
                                   encode(control::Attach{1, Accusation{0, {}, ExitCode::PeerLost, "eof"}}),
                                   encode(control::Join{}),
                                   {FrameKind::Join, ""},
                                   {FrameKind::Join, join.payload.substr(0, 20)},
                                   encode(join_of(nobody)),
                                   encode(join_of(far))};
  Meeting meeting(2);
  const auto attack_all = [&] {
    for (const Frame& frame : attacks) {
      Connection connection = visit(meeting.port());
      say(connection, frame);
      wait_for_end(connection);
    }
    rendezvous(meeting.options(1));
  };
  for (const Outcome& outcome : meeting.run({[&] { rendezvous(meeting.options(0)); }, attack_all}))
    EXPECT_EQ(outcome.error, "");
}

TEST(HostileMember, ThatTalksBeforeEverybodyIsHereEndsTheRendezvousForAll) {
  const std::vector<Attack> attacks{
      {"a key", {encode(control::Set{"k", "v"})}, "sent a Set before all ranks had joined"},
      {"a heartbeat", {encode(control::Heartbeat{})}, "sent a Heartbeat before all ranks had joined"},
      {"an accusation with code 0",
       {with_code(FrameKind::Accuse, 0)},
       "sent an Accuse with exit code 0, which is not a failure"}};
  for (const Attack& attack : attacks) {
    Meeting meeting(3);
    const auto talk = [&] {
      Connection connection = visit(meeting.port());
      connection.send(encode(join_of(member_of(1, 3))));
      say(connection, attack.frames[0]);
      wait_for_end(connection);
    };
    const auto outcomes = meeting.run({[&] { rendezvous(meeting.options(0)); }, talk});
    EXPECT_THAT(outcomes[0].error, StartsWith("rendezvous: rank 1 (a, pid 101) " + std::string(attack.message)));
    EXPECT_EQ(outcomes[0].code, ExitCode::Rendezvous);
  }
}

std::vector<Attack> attacks_after_joining() {
  return {{"accusation with code 0",
           {with_code(FrameKind::Accuse, 0)},
           "sent an Accuse with exit code 0, which is not a failure code"},
          {"accusation with code 256", {with_code(FrameKind::Accuse, 256)}, "sent an Accuse with exit code 256"},
          {"accusation of nobody",
           {Frame{FrameKind::Accuse, PayloadWriter().number(-1).number(10).text("eof").take()}},
           "sent an Accuse whose rank is -1; it must be 0 to 1"},
          {"accusation of a rank too many",
           {Frame{FrameKind::Accuse, PayloadWriter().number(2).number(10).text("eof").take()}},
           "sent an Accuse whose rank is 2; it must be 0 to 1"},
          {"empty accusation", {Frame{FrameKind::Accuse, ""}}, "sent an Accuse that is cut short"},
          {"goodbye in the middle", {Frame{FrameKind::Bye, ""}}, "sent a Bye while the job is running"},
          {"a second join", {encode(join_of(member_of(1, 2)))}, "sent a Join after all ranks had joined"},
          {"a welcome", {welcome_frame()}, "sent a Welcome after all ranks had joined"},
          {"a late refusal", {with_code(FrameKind::Refuse, 13)}, "sent a Refuse after all ranks had joined"},
          {"a late refusal with code 0", {with_code(FrameKind::Refuse, 0)}, "sent a Refuse with exit code 0"},
          {"a parent", {encode(control::Parent{1, "127.0.0.1:1"})}, "sent a Parent after all ranks had joined"},
          {"a heartbeat from the future",
           {Frame{FrameKind::Heartbeat, PayloadWriter().number(-1).take()}},
           "sent a Heartbeat whose time is -1"},
          {"empty key", {Frame{FrameKind::Set, ""}}, "sent a Set that is cut short"},
          {"two values of a key", {encode(control::Set{"k", "1"}), encode(control::Set{"k", "2"})}, "ranks disagree on \"k\""},
          {"a million keys",
           [] {
             std::vector<Frame> frames;
             for (int i = 0; i < 400; ++i) frames.push_back(encode(control::Set{std::to_string(i), std::string(65536, 'x')}));
             return frames;
           }(),
           "sent more than 16 MiB of keys for the store"}};
}

// Plays rank 0 of a job of two until rank 1 has joined.
Connection be_rank_zero(const Descriptor& door) {
  Connection connection = take_visitor(door);
  hear(connection);
  connection.send(welcome_frame());
  say(connection, table_frame(2));
  return connection;
}

// Runs the real monitor of `victim` while the other one of the two ranks sends the frames of the attack.
void attack_after_joining(int victim, const Attack& attack) {
  SCOPED_TRACE(std::string(attack.name) + ", read by rank " + std::to_string(victim));
  Meeting meeting(2);
  RendezvousOptions zero = meeting.options(0);
  const Descriptor door = listen_on("127.0.0.1", 0);
  auto job = std::make_shared<JobState>();
  std::unique_ptr<Liveness> reader;
  Connection connection;
  const int other = 1 - victim;
  const auto hostile = [&] { connection = victim == 0 ? join_by_hand(1, 2, meeting.port()) : be_rank_zero(door); };
  const auto honest = [&] {
    auto options = victim == 0 ? std::move(zero) : meeting_options(1, 2, port_of(door));
    reader = std::make_unique<Liveness>(rendezvous(std::move(options)), victim, LivenessOptions{}, job);
  };
  for (const Outcome& outcome : meeting.run({honest, hostile})) ASSERT_EQ(outcome.error, "");
  for (const Frame& frame : attack.frames) say(connection, frame);
  ASSERT_TRUE(job->wait_for(milliseconds(20000)));
  const Accusation accusation = job->accusation().value();
  EXPECT_EQ(accusation.world_rank, other);
  EXPECT_EQ(accusation.host, "a, pid " + std::to_string(100 + other));
  EXPECT_THAT(accusation.cause, HasSubstr(attack.message));
  EXPECT_NE(accusation.code, ExitCode::Done);
}

TEST(HostileMember, IsAccusedOfWhatItSendsToRankZero) {
  for (const Attack& attack : attacks_after_joining()) attack_after_joining(0, attack);
}

TEST(HostileRankZero, IsAccusedOfWhatItSendsToAMember) {
  for (const Attack& attack : attacks_after_joining()) attack_after_joining(1, attack);
}

// Somebody on the wire adds bytes of their own: a frame that any rank could send, but in clear.
TEST(HostileNetwork, ThatAddsAFrameEndsTheJobWithAnError) {
  Meeting meeting(2);
  auto job = std::make_shared<JobState>();
  std::unique_ptr<Liveness> reader;
  Connection other;
  meeting.run({[&] { reader = std::make_unique<Liveness>(rendezvous(meeting.options(0)), 0, LivenessOptions{}, job); },
               [&] { other = join_by_hand(1, 2, meeting.port()); }});
  const std::string frame = encode(encode(control::Set{"k", "v"})), added = frame + frame;
  ::send(other.number(), added.data(), added.size(), MSG_NOSIGNAL);
  ASSERT_TRUE(job->wait_for(milliseconds(20000)));
  EXPECT_EQ(job->accusation()->cause, "sent bytes that are not encrypted with the key of this connection");
  EXPECT_EQ(job->accusation()->world_rank, 1);
  EXPECT_EQ(job->accusation()->code, ExitCode::Rendezvous);
}

// The last bytes that rank 1 sends are garbage: the monitor's thread must not end the program.
TEST(HostileMember, ThatSendsGarbageWhileTheOthersLeaveIsNoCrash) {
  Meeting meeting(2);
  auto job = std::make_shared<JobState>();
  std::unique_ptr<Liveness> zero;
  Connection connection;
  meeting.run({[&] { zero = std::make_unique<Liveness>(rendezvous(meeting.options(0)), 0, LivenessOptions{}, job); },
               [&] { connection = join_by_hand(1, 2, meeting.port()); }});
  say(connection, encode(control::Arrive{control::kLastMeeting, {1}}));
  std::thread garbage([&] {
    for (bool bye = false;
         !bye && connection.fill() == Connection::State::Open && wait_readable(connection.number(), in(5000));)
      while (const auto frame = connection.next()) bye = bye || frame->kind == FrameKind::Bye;
    const std::string bytes(64, '\xff');
    while (::send(connection.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0)
      std::this_thread::sleep_for(milliseconds(1));
  });
  outcome_of([&] { zero->close(milliseconds(5000)); });
  zero.reset();
  garbage.join();
}

}  // namespace
}  // namespace trivet::comm
