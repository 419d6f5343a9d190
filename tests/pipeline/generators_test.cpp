// Tests the generators of schedules: their sizes, where they place stages, and schedules that are read from text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "pipeline/schedules/schedules.h"
#include "pipeline/stages.h"
#include "pipeline/validate.h"
#include "tests/support/temporary_folder.h"

namespace trivet::pipeline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Generators, AreCorrectForAnyNumberOfMicrobatches) {
  for (ScheduleKind kind : all_values<ScheduleKind>())
    for (int ranks = 1; ranks <= 6; ++ranks)
      for (int microbatches = 1; microbatches <= 14; ++microbatches) {
        const Schedule schedule = generate(kind, {ranks, microbatches, traits_of(kind).chunks});
        EXPECT_NO_THROW(validate(schedule, microbatches)) << name_of(kind) << ' ' << ranks << ' ' << microbatches;
      }
}

TEST(Generators, RefuseSizesThatTheyDoNotHave) {
  const auto refused = [](ScheduleKind kind, ScheduleSizes sizes, const char* message) {
    EXPECT_THAT([&] { generate(kind, sizes); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  refused(ScheduleKind::GPipe, {0, 1, 1}, "schedule \"gpipe\": 0 pipeline ranks are not accepted; use 1 or more");
  refused(ScheduleKind::ZeroBubbleH1, {2, -1, 1}, "-1 microbatches are not accepted; use 1 or more");
  refused(ScheduleKind::OneForwardOneBackward, {2, 4, 2}, "2 chunks are not accepted; use 1");
  refused(ScheduleKind::Interleaved, {2, 4, 1}, "use 2 or more (with 1 it is \"1f1b\")");
  refused(ScheduleKind::ZeroBubbleV, {2, 4, 3}, "schedule \"zb-v\": 3 chunks are not accepted; use 2");
}

TEST(Generators, PlaceStagesOnRanks) {
  EXPECT_THAT(stage_ranks(generate(ScheduleKind::GPipe, {3, 1, 1})), ElementsAre(0, 1, 2));
  EXPECT_THAT(stage_ranks(generate(ScheduleKind::Interleaved, {2, 1, 3})), ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_THAT(stage_ranks(generate(ScheduleKind::ZeroBubbleV, {3, 1, 2})), ElementsAre(0, 1, 2, 2, 1, 0));
}

TEST(Generators, InterleavedFollowsMegatronsOrderAndItsLastGroupMayBeSmaller) {
  EXPECT_EQ(to_string(interleaved(2, 2, 2)[1]), "1F0 1F1 3F0 3I0 3W0 3F1 3I1 3W1 1I0 1W0 1I1 1W1");
  EXPECT_EQ(to_string(interleaved(2, 1, 2)[0]), "0F0 2F0 2I0 2W0 0I0 0W0");
}

TEST(ParseSchedule, ReadsTheTextOfASchedule) {
  const Schedule schedule = parse_schedule("# two ranks\n0F0 0B0  # rank 0\n\n1F0 1I0 1W0\n", "two.txt");
  ASSERT_EQ(schedule.size(), 2u);
  EXPECT_EQ(to_string(schedule[0]), "0F0 0I0 0W0");
  for (ScheduleKind kind : all_values<ScheduleKind>()) {
    const Schedule made = generate(kind, {3, 5, traits_of(kind).chunks});
    std::string text;
    for (const Program& program : made) text += to_string(program) + "\n";
    EXPECT_EQ(parse_schedule(text, "made.txt"), made);
  }
}

TEST(ParseSchedule, NamesFileLineAndTokenOfAMistake) {
  const auto refused = [](const char* text, const char* message) {
    EXPECT_THAT([&] { parse_schedule(text, "s.txt"); }, ThrowsMessage<ConfigError>(HasSubstr(message))) << text;
  };
  refused("0F0 0.-1B0\n", "s.txt:1: \"0.-1B0\" is not accepted; write F, I, W or B");
  refused("-0F0 0B0\n", "s.txt:1: \"-0F0\" is not accepted; write F, I, W or B");
  refused("0F0 0B0\n1F0 1X0\n", "s.txt:2: \"1X0\" is not accepted; write F, I, W or B");
  refused("0.1F0", "s.txt:1: \"0.1F0\" is not accepted");
  refused("0F0 0SEND_F0", "s.txt:1: \"0SEND_F0\" is not accepted");
  refused("0F", "s.txt:1: \"0F\" is not accepted");
  refused("-1F0", "s.txt:1: \"-1F0\" is not accepted");
  refused("# nothing\n", "s.txt: no instructions");
  refused("0F0 0I0\n", "0W0 is missing");
  refused("0F0\n", "0I0 is missing");
  refused("0I0 0F0 0W0\n", "rank 0 waits forever at 0I0");
  refused("0F0 \x1b[31m0B0\n", "s.txt:1: \"\\x1b[31m0B0\" is not accepted");
  const std::string long_token(1000, 'F');
  refused(("0" + long_token).c_str(), ("s.txt:1: \"0" + long_token.substr(0, 199) + "...\" is not accepted").c_str());
  EXPECT_THAT([] { read_schedule("/no/such/file"); }, ThrowsMessage<ConfigError>(HasSubstr("/no/such/file: cannot be read")));
}

// Otherwise 15 bytes would make tables of gigabytes.
TEST(ParseSchedule, RefusesNumbersThatTheFileIsTooShortFor) {
  const auto refused = [](const char* text, const char* message) {
    EXPECT_THAT([&] { parse_schedule(text, "s.txt"); }, ThrowsMessage<ConfigError>(message)) << text;
  };
  refused("0F99999999 0B0",
          "s.txt: 0F0 and 0F99999999 imply 1 stages and 100000000 microbatches, but the file has only 3 instructions, which "
          "are too few; number both from 0 without gaps");
  refused("2147483647F2147483647 0B0",
          "s.txt: 2147483647F2147483647 and 2147483647F2147483647 imply 2147483648 stages and 2147483648 microbatches, but the "
          "file has only 3 instructions, which are too few; number both from 0 without gaps");
  refused(
      "3F0\n0F1 0B0",
      "s.txt: 3F0 and 0F1 imply 4 stages and 2 microbatches, but the file has only 4 instructions, which are too few; number "
      "both from 0 without gaps");
}

TEST(ReadSchedule, RefusesAFileThatIsTooLong) {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("schedule", "0F0 0B0\n");
  EXPECT_EQ(read_schedule(path).size(), 1u);
  std::filesystem::resize_file(path, (16 << 20) + 1);
  EXPECT_THAT([&] { read_schedule(path); },
              ThrowsMessage<ConfigError>(path + ": has 16777217 bytes; a schedule may have at most 16777216; name a file with "
                                                "one line per pipeline rank"));
}

}  // namespace
}  // namespace trivet::pipeline
