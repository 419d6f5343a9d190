#include "comm/wire_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/meeting.h"

namespace trivet::comm {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Member member(int rank, int size) { return meeting_options(rank, size, 0).self; }

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

Table table_of(int size) {
  Table table{.job_id = "c0ffee", .members = {}};
  for (int rank = 0; rank < size; ++rank) table.members.push_back(member(rank, size));
  return table;
}

TEST(WireMessages, ArriveAsTheyWereSent) {
  Member sent{.rank = 3, .world_size = 8, .job_id = "abc", .epoch = 5, .build = "2-ff", .host = "h", .boot_id = "b", .pid = 77};
  sent.started = 123456789;
  EXPECT_EQ(encode_join(sent).kind, FrameKind::Join);
  expect_equal(decode_join(encode_join(sent).payload), sent);
  EXPECT_EQ(encode_welcome(sent).kind, FrameKind::Welcome);
  expect_equal(decode_welcome(encode_welcome(sent).payload), sent);

  const Table table = decode_table(encode_table(table_of(5)).payload);
  EXPECT_EQ(table.job_id, "c0ffee");
  ASSERT_EQ(table.members.size(), 5u);
  for (int rank = 0; rank < 5; ++rank) expect_equal(table.members[rank], member(rank, 5));

  const Refusal refusal = decode_refuse(encode_refuse({ExitCode::VersionSkew, "why"}).payload);
  EXPECT_EQ(refusal.code, ExitCode::VersionSkew);
  EXPECT_EQ(refusal.reason, "why");

  const StoreEntry entry = decode_set(encode_set({"key", "value"}).payload);
  EXPECT_EQ(entry.key, "key");
  EXPECT_EQ(entry.value, "value");

  const Accusation accusation = decode_accuse(encode_accuse({2, "a", ExitCode::NoProgress, "cause"}).payload, 3);
  EXPECT_EQ(accusation.world_rank, 2);
  EXPECT_EQ(accusation.host, "") << "the host is neither sent nor believed";
  EXPECT_EQ(accusation.code, ExitCode::NoProgress);
  EXPECT_EQ(accusation.cause, "cause");
}

// A cause may be the text of any exception; a frame may not be longer than the other side reads.
TEST(WireMessages, CutCausesAndReasonsThatAreTooLong) {
  const std::string longest(5000000, 'x');
  const std::string expected = std::string(4093, 'x') + "...";
  EXPECT_EQ(decode_accuse(encode_accuse({0, "", ExitCode::PeerLost, longest}).payload, 1).cause, expected);
  EXPECT_EQ(decode_refuse(encode_refuse({ExitCode::Rendezvous, longest}).payload).reason, expected);
  const std::string fits(4096, 'y');
  EXPECT_EQ(decode_accuse(encode_accuse({0, "", ExitCode::PeerLost, fits}).payload, 1).cause, fits);
}

using Decode = std::function<void(std::string_view)>;

std::string error_of(const Decode& decode, std::string_view payload) {
  const Outcome outcome = outcome_of([&] { decode(payload); });
  EXPECT_EQ(outcome.code, outcome.error.empty() ? ExitCode::Done : ExitCode::Rendezvous);
  return outcome.error;
}

struct PayloadKind {
  const char* name;
  std::string payload;
  Decode decode;
};

std::vector<PayloadKind> kinds() {
  return {
      {"a Join", encode_join(member(1, 3)).payload, [](auto bytes) { decode_join(bytes); }},
      {"a Welcome", encode_welcome(member(0, 3)).payload, [](auto bytes) { decode_welcome(bytes); }},
      {"a Table", encode_table(table_of(3)).payload, [](auto bytes) { decode_table(bytes); }},
      {"a Refuse", encode_refuse({ExitCode::Rendezvous, "why"}).payload, [](auto bytes) { decode_refuse(bytes); }},
      {"a Set", encode_set({"key", "value"}).payload, [](auto bytes) { decode_set(bytes); }},
      {"an Accuse", encode_accuse({2, "", ExitCode::PeerLost, "eof"}).payload, [](auto bytes) { decode_accuse(bytes, 3); }}};
}

TEST(WireMessages, ThatAreCutShortAnywhereOrGoOnAreRefused) {
  for (const PayloadKind& kind : kinds()) {
    EXPECT_EQ(error_of(kind.decode, kind.payload), "");
    for (size_t length = 0; length < kind.payload.size(); ++length) {
      const std::string error = error_of(kind.decode, std::string_view(kind.payload).substr(0, length));
      EXPECT_EQ(error, "sent " + std::string(kind.name) + " that is cut short") << length;
    }
    EXPECT_EQ(error_of(kind.decode, kind.payload + "x"), "sent " + std::string(kind.name) + " with 1 bytes after its end");
  }
}

// Each byte is replaced by each of a few values: the result must be a message or an error, never anything else. This matters
// most under the sanitizers.
TEST(WireMessages, WithAnyByteChangedAreReadOrRefused) {
  for (const PayloadKind& kind : kinds()) {
    for (size_t at = 0; at < kind.payload.size(); ++at) {
      for (int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
        std::string bytes = kind.payload;
        bytes[at] = static_cast<char>(value);
        const std::string error = error_of(kind.decode, bytes);
        EXPECT_THAT(error, ::testing::AnyOf("", StartsWith("sent " + std::string(kind.name))));
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
    Member changed = member(1, 3);
    bad.change(changed);
    EXPECT_THAT(error_of(kinds()[0].decode, encode_join(changed).payload), HasSubstr(bad.message)) << bad.name;
    EXPECT_THAT(error_of(kinds()[1].decode, encode_welcome(changed).payload), HasSubstr(bad.message)) << bad.name;
    Table table = table_of(3);
    bad.change(table.members[1]);
    EXPECT_THAT(error_of(kinds()[2].decode, encode_table(table).payload), HasSubstr(bad.message)) << bad.name;
  }
}

TEST(WireMessages, WithTablesOfNobodyOrOfStrangersAreRefused) {
  const auto error = [](const std::function<void(Table&)>& change) {
    Table table = table_of(3);
    change(table);
    return error_of([](auto bytes) { decode_table(bytes); }, encode_table(table).payload);
  };
  EXPECT_THAT(error([](Table& t) { t.members.clear(); }), HasSubstr("whose number of members is 0; it must be 2 to 1048576"));
  EXPECT_THAT(error([](Table& t) { t.members.resize(1); }), HasSubstr("whose number of members is 1"));
  EXPECT_THAT(error([](Table& t) { t.members.resize(2); }), HasSubstr("of 2 members in which rank 0 says 3"));
  EXPECT_THAT(error([](Table& t) { t.members[2].world_size = 4; }), HasSubstr("of 3 members in which rank 2 says 4"));
  EXPECT_THAT(error([](Table& t) { t.members[2].rank = 1; }), HasSubstr("with rank 1 in the place of rank 2"));
  EXPECT_THAT(error([](Table& t) { std::swap(t.members[0], t.members[1]); }), HasSubstr("with rank 1 in the place of rank 0"));
  EXPECT_THAT(error([](Table& t) { t.members[1].epoch = 9; }), HasSubstr("in which rank 1 has a different epoch or build"));
  EXPECT_THAT(error([](Table& t) { t.members[1].build = "x"; }), HasSubstr("in which rank 1 has a different epoch or build"));
  EXPECT_THAT(error([](Table& t) { t.job_id = ""; }), HasSubstr("whose job id is not hexadecimal"));
  EXPECT_THAT(error([](Table& t) { t.job_id = "/etc/x"; }), HasSubstr("whose job id is not hexadecimal"));
  // The count promises more members than the message has bytes for.
  const std::string huge = PayloadWriter().text("c0ffee").number(1 << 20).take();
  EXPECT_EQ(error_of([](auto bytes) { decode_table(bytes); }, huge), "sent a Table that is cut short");
}

// The receiver exits with the code that it is sent: 0 would be success, and only the lowest 8 bits reach the shell.
TEST(WireMessages, WithACodeThatIsNoFailureAreRefused) {
  for (int64_t code : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{17}, int64_t{71}, int64_t{137}, int64_t{255}, int64_t{256},
                       int64_t{266}, int64_t{-246}, int64_t{1} << 32, (int64_t{1} << 32) + 10, INT64_MIN, INT64_MAX}) {
    const std::string refuse = PayloadWriter().number(code).text("why").take();
    const std::string accuse = PayloadWriter().number(1).number(code).text("why").take();
    const std::string expected =
        "with exit code " + std::to_string(code) + ", which is not a failure code of a rank (docs/exit_codes.md)";
    EXPECT_EQ(error_of([](auto bytes) { decode_refuse(bytes); }, refuse), "sent a Refuse " + expected);
    EXPECT_EQ(error_of([](auto bytes) { decode_accuse(bytes, 3); }, accuse), "sent an Accuse " + expected);
  }
}

TEST(WireMessages, WithAnyCodeOfAFailureAreRead) {
  for (ExitCode code :
       {ExitCode::Usage, ExitCode::PeerLost, ExitCode::NoProgress, ExitCode::RanksDisagree, ExitCode::Rendezvous,
        ExitCode::CheckpointNotWritten, ExitCode::CheckpointCorrupt, ExitCode::Numerics, ExitCode::DataChanged,
        ExitCode::OutOfMemory, ExitCode::VersionSkew, ExitCode::Storage, ExitCode::Device, ExitCode::Internal}) {
    EXPECT_EQ(decode_refuse(encode_refuse({code, ""}).payload).code, code);
    EXPECT_EQ(decode_accuse(encode_accuse({0, "", code, ""}).payload, 1).code, code);
  }
}

TEST(WireMessages, ThatAccuseARankOutsideTheWorldAreRefused) {
  for (int64_t rank : {int64_t{-1}, int64_t{3}, int64_t{1} << 32, INT64_MIN}) {
    const std::string payload = PayloadWriter().number(rank).number(10).text("eof").take();
    EXPECT_EQ(error_of([](auto bytes) { decode_accuse(bytes, 3); }, payload),
              "sent an Accuse whose rank is " + std::to_string(rank) + "; it must be 0 to 2");
  }
}

TEST(WireMessages, WithKeysAndValuesThatAreTooLongAreRefusedOnBothSides) {
  EXPECT_THROW(encode_set({std::string(1025, 'k'), ""}), std::logic_error);
  EXPECT_THROW(encode_set({"", std::string(65537, 'v')}), std::logic_error);
  const auto decode = [](auto bytes) { decode_set(bytes); };
  EXPECT_THAT(error_of(decode, PayloadWriter().text(std::string(1025, 'k')).text("").take()),
              HasSubstr("whose key has 1025 bytes"));
  EXPECT_THAT(error_of(decode, PayloadWriter().text("").text(std::string(65537, 'v')).take()),
              HasSubstr("whose value has 65537 bytes; at most 65536 are accepted"));
}

TEST(Frames, AreReadOneByOneAndOnlyWhenComplete) {
  const std::string bytes = encode({FrameKind::Heartbeat, ""}) + encode({FrameKind::Set, "abc"});
  const auto first = decode_frame(bytes);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->frame.kind, FrameKind::Heartbeat);
  EXPECT_EQ(first->bytes, 5u);
  const std::string rest = bytes.substr(5);
  for (size_t length = 0; length < rest.size(); ++length) EXPECT_FALSE(decode_frame(std::string_view(rest).substr(0, length)));
  const auto second = decode_frame(rest + "further bytes");
  ASSERT_TRUE(second);
  EXPECT_EQ(second->frame.payload, "abc");
  EXPECT_EQ(second->bytes, 8u);
}

// Both are known from the first five bytes, before anything is stored for the frame.
TEST(Frames, OfNoKindOrTooLongForTheirKindAreRefused) {
  const auto head = [](uint32_t length, int kind) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(length >> (8 * i)));
    bytes.push_back(static_cast<char>(kind));
    return bytes;
  };
  for (int kind : {0, 9, 200, 255}) EXPECT_THROW(decode_frame(head(0, kind)), CommError) << kind;
  for (int kind = 1; kind <= 8; ++kind) {
    const size_t longest = longest_payload(static_cast<uint8_t>(kind)).value();
    EXPECT_LE(longest, kLongestPayload);
    EXPECT_FALSE(decode_frame(head(static_cast<uint32_t>(longest + 0), kind)) && longest > 0) << kind;
    EXPECT_THROW(decode_frame(head(static_cast<uint32_t>(longest + 1), kind)), CommError) << kind;
    EXPECT_THROW(decode_frame(head(0xffffffff, kind)), CommError) << kind;
  }
  EXPECT_EQ(longest_payload(static_cast<uint8_t>(FrameKind::Heartbeat)), size_t{0});
  EXPECT_EQ(longest_payload(static_cast<uint8_t>(FrameKind::Bye)), size_t{0});
}

}  // namespace
}  // namespace trivet::comm
