#include "comm/wire_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/meeting.h"

namespace trivet::comm::control {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kRanks = 4;

Member member(int rank) { return meeting_options(rank, kRanks, 0).self; }

// Ranks 0 and 1 are on the root's host, 2 and 3 on another one.
std::shared_ptr<Table> table_of_four() {
  auto table = std::make_shared<Table>();
  table->job_id = "c0ffee";
  const std::vector<int> node_of{0, 0, 2, 2};
  for (int rank = 0; rank < kRanks; ++rank)
    table->seats.push_back({member(rank), node_of[rank], rank == 2 ? "10.0.0.2:4711" : ""});
  table->tree = Tree(node_of, 3);
  return table;
}

Announce changed_table(const std::function<void(Table&)>& change) {
  auto table = table_of_four();
  change(*table);
  return {table};
}

Join join_of_two() { return {{{member(2), 2, "10.0.0.2:4711"}, {member(3), 2, ""}}}; }

// Every kind of message, with something in every field.
std::vector<Message> all_messages() {
  Member full{.rank = 3, .world_size = 8, .job_id = "abc", .epoch = 5, .build = "2-ff", .host = "h", .boot_id = "b", .pid = 77};
  full.started = 123456789;
  const Accusation accusation{2, "", ExitCode::NoProgress, "cause"};
  return {join_of_two(),
          Welcome{full},
          Refuse{3, 77, {ExitCode::VersionSkew, "why"}},
          Parent{2, "10.0.0.2:4711"},
          Attach{3, accusation},
          Announce{table_of_four()},
          Heartbeat{std::chrono::milliseconds(130)},
          Set{"key", "value"},
          Accuse{accusation},
          Arrive{"there", {1, 3}},
          Met{"there"},
          Ask{"there"},
          Missing{"there", {0, 2}},
          Bye{}};
}

template <typename Kind>
Kind sent_and_read(const Kind& message) {
  return std::get<Kind>(decode(encode(message), kRanks));
}

std::string error_of(const Frame& frame) {
  const Outcome outcome = outcome_of([&] { decode(frame, kRanks); });
  EXPECT_EQ(outcome.code, outcome.error.empty() ? ExitCode::Done : ExitCode::Rendezvous);
  return outcome.error;
}

std::string error_of(const Message& message) { return error_of(encode(message)); }

void expect_equal(const Member& a, const Member& b) {
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(a.world_size, b.world_size);
  EXPECT_EQ(a.job_id, b.job_id);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.build, b.build);
  EXPECT_EQ(a.host, b.host);
  EXPECT_EQ(a.boot_id, b.boot_id);
  EXPECT_EQ(a.pid, b.pid);
  EXPECT_EQ(a.started, b.started);
}

void expect_equal(const std::vector<Seat>& a, const std::vector<Seat>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    expect_equal(a[i].member, b[i].member);
    EXPECT_EQ(a[i].node, b[i].node);
    EXPECT_EQ(a[i].address, b[i].address);
  }
}

void expect_equal(const Accusation& a, const Accusation& b) {
  EXPECT_EQ(a.world_rank, b.world_rank);
  EXPECT_EQ(a.host, b.host);
  EXPECT_EQ(a.code, b.code);
  EXPECT_EQ(a.cause, b.cause);
}

// The bytes hold all fields in one order, so messages whose bytes are equal are equal.
TEST(WireMessages, ArriveAsTheyWereSent) {
  const std::vector<Message> messages = all_messages();
  ASSERT_EQ(messages.size(), std::variant_size_v<Message>);
  for (size_t kind = 0; kind < messages.size(); ++kind) {
    const Frame frame = encode(messages[kind]);
    EXPECT_EQ(frame.kind, static_cast<FrameKind>(kind + 1));
    const Message read = decode(frame, kRanks);
    EXPECT_EQ(read.index(), kind);
    EXPECT_EQ(encode(read).payload, frame.payload) << name_of(kind);
  }
}

TEST(WireMessages, ArriveWithAllTheirFields) {
  expect_equal(sent_and_read(join_of_two()).seats, join_of_two().seats);
  expect_equal(sent_and_read(Welcome{member(2)}).by, member(2));
  const Refuse refuse = sent_and_read(Refuse{3, 77, {ExitCode::VersionSkew, "why"}});
  EXPECT_EQ(refuse.rank, 3);
  EXPECT_EQ(refuse.pid, 77);
  EXPECT_EQ(refuse.refusal.code, ExitCode::VersionSkew);
  EXPECT_EQ(refuse.refusal.reason, "why");
  EXPECT_EQ(sent_and_read(Refuse{-1, 0, {ExitCode::Rendezvous, ""}}).rank, -1);
  const Accusation sent{2, "", ExitCode::NoProgress, "cause"};
  const Attach attach = sent_and_read(Attach{3, sent});
  EXPECT_EQ(attach.rank, 3);
  ASSERT_TRUE(attach.lost);
  expect_equal(*attach.lost, sent);
  EXPECT_FALSE(sent_and_read(Attach{3, std::nullopt}).lost);
  const Announce announce = sent_and_read(Announce{table_of_four()});
  EXPECT_EQ(announce.table->job_id, "c0ffee");
  expect_equal(announce.table->seats, table_of_four()->seats);
  EXPECT_EQ(announce.table->tree.fan_out(), 3);
  EXPECT_EQ(announce.table->tree.parent(3), 2);
  EXPECT_EQ(sent_and_read(Heartbeat{std::chrono::milliseconds(130)}).since_root.count(), 130);
  EXPECT_EQ(sent_and_read(Set{"key", "value"}).value, "value");
  expect_equal(sent_and_read(Accuse{{2, "a host", ExitCode::NoProgress, "cause"}}).accusation, sent);  // the host is not sent
  EXPECT_EQ(sent_and_read(Arrive{"there", {1, 3}}).ranks, (std::vector{1, 3}));
  EXPECT_EQ(sent_and_read(Missing{"there", {}}).ranks, std::vector<int>{});
}

// A cause may be the text of any exception; a frame may not be longer than the other side reads.
TEST(WireMessages, CutCausesAndReasonsThatAreTooLong) {
  const std::string longest(5000000, 'x'), expected = std::string(4093, 'x') + "...", fits(4096, 'y');
  EXPECT_EQ(sent_and_read(Accuse{{0, "", ExitCode::PeerLost, longest}}).accusation.cause, expected);
  EXPECT_EQ(sent_and_read(Refuse{0, 1, {ExitCode::Rendezvous, longest}}).refusal.reason, expected);
  EXPECT_EQ(sent_and_read(Accuse{{0, "", ExitCode::PeerLost, fits}}).accusation.cause, fits);
}

TEST(WireMessages, ThatAreCutShortAnywhereOrGoOnAreRefused) {
  for (const Message& message : all_messages()) {
    const Frame whole = encode(message);
    EXPECT_EQ(error_of(whole), "");
    for (size_t length = 0; length < whole.payload.size(); ++length)
      EXPECT_EQ(error_of(Frame{whole.kind, whole.payload.substr(0, length)}), "sent " + name_of(message) + " that is cut short")
          << length;
    EXPECT_EQ(error_of(Frame{whole.kind, whole.payload + "x"}), "sent " + name_of(message) + " with 1 bytes after its end");
  }
}

// Each byte is replaced by each of a few values: the result must be a message or an error, never anything else. This matters
// most under the sanitizers.
TEST(WireMessages, WithAnyByteChangedAreReadOrRefused) {
  for (const Message& message : all_messages()) {
    const Frame whole = encode(message);
    for (size_t at = 0; at < whole.payload.size(); ++at) {
      for (int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
        Frame frame = whole;
        frame.payload[at] = static_cast<char>(value);
        EXPECT_THAT(error_of(frame), AnyOf("", StartsWith("sent " + name_of(message))));
      }
    }
  }
}

struct BadMember {
  const char* name;
  void (*change)(Member&);
  const char* message;
};

const std::vector<BadMember>& bad_members() {
  static const std::vector<BadMember> all{
      {"RankNegative", [](Member& m) { m.rank = -1; }, "whose rank is -1; it must be 0 to 1048575"},
      {"RankTooLarge", [](Member& m) { m.rank = 1 << 20; }, "whose rank is 1048576; it must be 0 to 1048575"},
      {"NoWorld", [](Member& m) { m.world_size = 0; }, "whose world size is 0; it must be 1 to 1048576"},
      {"WorldTooLarge", [](Member& m) { m.world_size = (1 << 20) + 1; }, "whose world size is 1048577"},
      {"EpochNegative", [](Member& m) { m.epoch = -3; }, "whose epoch is -3"},
      {"PidZero", [](Member& m) { m.pid = 0; }, "whose pid is 0; it must be 1 to 2147483647"},
      {"PidTooLarge", [](Member& m) { m.pid = int64_t{1} << 31; }, "whose pid is 2147483648"},
      {"StartNegative", [](Member& m) { m.started = -1; }, "whose start time is -1"},
      {"JobIdNoHex", [](Member& m) { m.job_id = "../x"; }, "whose job id is not hexadecimal"},
      {"JobIdTooLong", [](Member& m) { m.job_id = std::string(65, 'a'); },
       "whose job id has 65 bytes; at most 64 are accepted"},
      {"BuildTooLong", [](Member& m) { m.build = std::string(65, 'a'); }, "whose build has 65 bytes; at most 64 are accepted"},
      {"HostTooLong", [](Member& m) { m.host = std::string(256, 'a'); }, "whose host has 256 bytes; at most 255 are accepted"},
      {"BootIdTooLong", [](Member& m) { m.boot_id = std::string(65, 'a'); }, "whose boot id has 65 bytes"}};
  return all;
}

TEST(WireMessages, WithAMemberThatCannotBeAreRefused) {
  for (const BadMember& bad : bad_members()) {
    Join join = join_of_two();
    bad.change(join.seats[1].member);
    EXPECT_THAT(error_of(join), HasSubstr(bad.message)) << bad.name;
    EXPECT_THAT(error_of(Welcome{join.seats[1].member}), HasSubstr(bad.message)) << bad.name;
  }
}

TEST(WireMessages, OfTooManySeatsOrWithBadOnesAreRefused) {
  const auto error = [](const std::function<void(Join&)>& change) {
    Join join = join_of_two();
    change(join);
    return error_of(join);
  };
  EXPECT_EQ(error([](Join& j) { j.seats.resize(512, j.seats[0]); }), "");
  EXPECT_THAT(error([](Join& j) { j.seats.resize(513, j.seats[0]); }),
              HasSubstr("number of ranks is 513; it must be 1 to 512"));
  EXPECT_THAT(error([](Join& j) { j.seats.clear(); }), HasSubstr("whose number of ranks is 0"));
  EXPECT_THAT(error([](Join& j) { j.seats[1].node = -2; }), HasSubstr("whose node is -2; it must be -1 to 1048575"));
  EXPECT_THAT(error([](Join& j) { j.seats[1].node = 1 << 20; }), HasSubstr("whose node is 1048576"));
  EXPECT_THAT(error([](Join& j) { j.seats[0].address = std::string(301, '1'); }), HasSubstr("whose address has 301 bytes"));
}

TEST(WireMessages, WithTablesThatCannotBeAreRefused) {
  const auto error = [](const std::function<void(Table&)>& change) { return error_of(changed_table(change)); };
  EXPECT_THAT(error([](Table& t) { t.seats.resize(1); }), HasSubstr("whose number of ranks is 1; it must be 2 to 1048576"));
  EXPECT_THAT(error([](Table& t) { t.job_id = ""; }), HasSubstr("whose job id is not hexadecimal"));
  EXPECT_THAT(error([](Table& t) { t.job_id = "/etc/x"; }), HasSubstr("whose job id is not hexadecimal"));
  EXPECT_THAT(error([](Table& t) { t.seats[0].member.epoch = -1; }), HasSubstr("whose epoch is -1"));
  EXPECT_THAT(error([](Table& t) { t.seats[0].member.build = std::string(65, 'b'); }), HasSubstr("whose build has 65 bytes"));
  EXPECT_THAT(error([](Table& t) { t.tree = Tree({0, 0, 0, 0}, 0); }), HasSubstr("whose fan-out is 0"));
  EXPECT_THAT(error([](Table& t) { t.seats[1].member.pid = 0; }), HasSubstr("whose pid is 0"));
  EXPECT_THAT(error([](Table& t) { t.seats[1].member.started = -1; }), HasSubstr("whose start time is -1"));
  EXPECT_THAT(error([](Table& t) { t.seats[1].member.host = std::string(256, 'h'); }), HasSubstr("whose host has 256 bytes"));
  EXPECT_THAT(error([](Table& t) { t.seats[1].address = std::string(301, '1'); }), HasSubstr("whose address has 301 bytes"));
  EXPECT_THAT(error([](Table& t) { t.seats[3].node = 4; }), HasSubstr("whose node is 4; it must be 0 to 3"));
  EXPECT_THAT(error([](Table& t) { t.seats[3].node = -1; }), HasSubstr("whose node is -1"));
  EXPECT_THAT(error([](Table& t) { t.seats[3].node = 1; }), HasSubstr("rank 3 is below rank 1, which is not the node"));
  EXPECT_THAT(error([](Table& t) { t.seats[0].node = 2; }), HasSubstr("rank 0 is below rank 2, which is not the node"));
  // The count promises more ranks than the message has bytes for.
  const Frame huge{FrameKind::Announce, PayloadWriter().text("c0ffee").number(0).text("b").number(32).number(1 << 20).take()};
  EXPECT_EQ(error_of(huge), "sent an Announce that is cut short");
}

// The receiver exits with the code that it is sent: 0 would be success, and only the lowest 8 bits reach the shell.
TEST(WireMessages, WithACodeThatIsNoFailureAreRefused) {
  for (int64_t code : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{17}, int64_t{71}, int64_t{137}, int64_t{255}, int64_t{256},
                       int64_t{266}, int64_t{-246}, int64_t{1} << 32, (int64_t{1} << 32) + 10, INT64_MIN, INT64_MAX}) {
    const std::string expected =
        "with exit code " + std::to_string(code) + ", which is not a failure code of a rank (docs/exit_codes.md)";
    const auto text = [&](PayloadWriter& before) { return before.number(code).text("why").take(); };
    PayloadWriter refuse, accuse, attach;
    EXPECT_EQ(error_of(Frame{FrameKind::Refuse, text(refuse.number(-1).number(0))}), "sent a Refuse " + expected);
    EXPECT_EQ(error_of(Frame{FrameKind::Accuse, text(accuse.number(1))}), "sent an Accuse " + expected);
    EXPECT_EQ(error_of(Frame{FrameKind::Attach, text(attach.number(1).number(1).number(1))}), "sent an Attach " + expected);
  }
}

TEST(WireMessages, WithAnyCodeOfAFailureAreRead) {
  for (ExitCode code :
       {ExitCode::Usage, ExitCode::PeerLost, ExitCode::NoProgress, ExitCode::RanksDisagree, ExitCode::Rendezvous,
        ExitCode::CheckpointNotWritten, ExitCode::CheckpointCorrupt, ExitCode::Numerics, ExitCode::DataChanged,
        ExitCode::OutOfMemory, ExitCode::VersionSkew, ExitCode::Storage, ExitCode::Device, ExitCode::Internal}) {
    EXPECT_EQ(sent_and_read(Refuse{-1, 0, {code, ""}}).refusal.code, code);
    EXPECT_EQ(sent_and_read(Accuse{{0, "", code, ""}}).accusation.code, code);
  }
}

TEST(WireMessages, ThatNameARankOutsideTheWorldAreRefused) {
  for (int rank : {-1, kRanks, 1 << 20}) {
    const std::string expected = "whose rank is " + std::to_string(rank) + "; it must be 0 to 3";
    const Accusation lost{rank, "", ExitCode::PeerLost, "eof"};
    for (const Message& message :
         {Message(Accuse{lost}), Message(Attach{rank, std::nullopt}), Message(Attach{0, lost}), Message(Parent{rank, ""}),
          Message(Arrive{"there", {rank}}), Message(Missing{"there", {0, rank}})})
      EXPECT_EQ(error_of(message), "sent " + name_of(message) + " " + expected);
  }
  EXPECT_THAT(error_of(Refuse{-2, 0, {ExitCode::Rendezvous, ""}}), HasSubstr("whose rank is -2; it must be -1 to 1048575"));
  EXPECT_THAT(error_of(Refuse{0, -1, {ExitCode::Rendezvous, ""}}), HasSubstr("whose pid is -1"));
  EXPECT_THAT(error_of(Arrive{"there", {0, 1, 2, 3, 0}}), HasSubstr("whose number of ranks is 5; it must be 0 to 4"));
}

TEST(WireMessages, WithTextsThatAreTooLongAreRefused) {
  EXPECT_THROW(encode(Set{std::string(1025, 'k'), ""}), std::logic_error);
  EXPECT_THROW(encode(Set{"", std::string(65537, 'v')}), std::logic_error);
  EXPECT_THAT(error_of(Frame{FrameKind::Set, PayloadWriter().text(std::string(1025, 'k')).text("").take()}),
              HasSubstr("whose key has 1025 bytes"));
  EXPECT_THAT(error_of(Frame{FrameKind::Set, PayloadWriter().text("").text(std::string(65537, 'v')).take()}),
              HasSubstr("whose value has 65537 bytes; at most 65536 are accepted"));
  const std::string name(1025, 'm');
  for (const Message& message : {Message(Met{name}), Message(Ask{name}), Message(Arrive{name, {}}), Message(Missing{name, {}})})
    EXPECT_THAT(error_of(message), HasSubstr("whose meeting has 1025 bytes"));
  EXPECT_THAT(error_of(Parent{1, std::string(301, '1')}), HasSubstr("whose address has 301 bytes"));
  EXPECT_THAT(error_of(Heartbeat{std::chrono::milliseconds(-1)}), HasSubstr("whose time is -1"));
}

constexpr FrameLimits kFromAbove{.world_size = kRanks, .table = true}, kFromBelow{.world_size = kRanks};

TEST(Frames, AreReadOneByOneAndOnlyWhenComplete) {
  const std::string bytes = comm::encode({FrameKind::Bye, ""}) + comm::encode({FrameKind::Set, "abc"});
  const auto first = decode_frame(bytes, kFromBelow);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->frame.kind, FrameKind::Bye);
  EXPECT_EQ(first->bytes, 5u);
  const std::string rest = bytes.substr(5);
  for (size_t length = 0; length < rest.size(); ++length)
    EXPECT_FALSE(decode_frame(std::string_view(rest).substr(0, length), kFromBelow));
  const auto second = decode_frame(rest + "further bytes", kFromBelow);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->frame.payload, "abc");
  EXPECT_EQ(second->bytes, 8u);
}

std::string head_of_frame(size_t length, int kind) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(length >> (8 * i)));
  bytes.push_back(static_cast<char>(kind));
  return bytes;
}

// Both are known from the first five bytes, before anything is stored for the frame.
TEST(Frames, OfNoKindOrTooLongForTheirKindAreRefused) {
  for (int kind : {0, 15, 200, 255}) EXPECT_THROW(decode_frame(head_of_frame(0, kind), kFromAbove), CommError) << kind;
  for (int kind = 1; kind <= 14; ++kind) {
    const size_t longest = longest_payload(static_cast<uint8_t>(kind), kFromAbove).value();
    EXPECT_NO_THROW(decode_frame(head_of_frame(longest, kind), kFromAbove)) << kind;
    EXPECT_THROW(decode_frame(head_of_frame(longest + 1, kind), kFromAbove), CommError) << kind;
    EXPECT_THROW(decode_frame(head_of_frame(0xffffffff, kind), kFromAbove), CommError) << kind;
  }
  EXPECT_EQ(longest_payload(static_cast<uint8_t>(FrameKind::Bye), kFromAbove), size_t{0});
}

TEST(Frames, HoldATableOnlyFromAboveAndOnlyOfThisWorld) {
  const auto announce = static_cast<uint8_t>(FrameKind::Announce);
  EXPECT_THROW(decode_frame(head_of_frame(0, announce), kFromBelow), CommError);
  EXPECT_LT(longest_payload(announce, kFromAbove).value(), size_t{8} << 10) << "4 ranks have no long table";
  EXPECT_GT(longest_payload(announce, {.world_size = 16384, .table = true}).value(), size_t{2} << 20);
}

// The longest of each: what encode() makes of fields that decode() accepts must be accepted as a frame.
TEST(Frames, HoldTheLongestMessages) {
  Member longest{.rank = 0, .world_size = kRanks, .job_id = std::string(64, 'a'), .build = std::string(64, 'b')};
  longest.host = std::string(255, 'h');
  longest.boot_id = std::string(64, 'i');
  longest.pid = 1;
  const Seat seat{longest, 0, std::string(300, '1')};
  const Accusation accusation{0, "", ExitCode::PeerLost, std::string(4096, 'c')};
  auto table = std::make_shared<Table>(Table{longest.job_id, std::vector<Seat>(kRanks, seat), Tree({0, 0, 0, 0})});
  const std::string name(1024, 'm');
  for (const Message& message :
       {Message(Join{std::vector<Seat>(kMostSeats, seat)}), Message(Welcome{longest}),
        Message(Refuse{0, 1, {ExitCode::Rendezvous, accusation.cause}}), Message(Parent{0, seat.address}),
        Message(Attach{0, accusation}), Message(Announce{table}), Message(Accuse{accusation}),
        Message(Arrive{name, {0, 1, 2, 3}}), Message(Missing{name, {0, 1, 2, 3}}), Message(Met{name}), Message(Ask{name}),
        Message(Set{name, std::string(65536, 'v')})}) {
    const auto frame = decode_frame(comm::encode(encode(message)), kFromAbove);
    ASSERT_TRUE(frame) << name_of(message);
    EXPECT_EQ(error_of(frame->frame), "");
  }
}

}  // namespace
}  // namespace trivet::comm::control
