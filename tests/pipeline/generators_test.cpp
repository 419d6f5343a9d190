// The generators: sizes, places of stages, and schedules read from text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "pipeline/schedules/schedules.h"
#include "pipeline/stages.h"
#include "pipeline/validate.h"

namespace trivet::pipeline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr ScheduleKind kKinds[] = {ScheduleKind::GPipe,        ScheduleKind::OneForwardOneBackward, ScheduleKind::Interleaved,
                                   ScheduleKind::ZeroBubbleH1, ScheduleKind::ZeroBubble2p,          ScheduleKind::ZeroBubbleV};

TEST(Generators, AreCorrectForAnyNumberOfMicrobatches) {
  for (ScheduleKind kind : kKinds)
    for (int ranks = 1; ranks <= 6; ++ranks)
      for (int microbatches = 1; microbatches <= 14; ++microbatches) {
        const Schedule schedule = generate(kind, {ranks, microbatches, default_chunks(kind)});
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
  for (ScheduleKind kind : kKinds) {
    const Schedule made = generate(kind, {3, 5, default_chunks(kind)});
    std::string text;
    for (const Program& program : made) text += to_string(program) + "\n";
    EXPECT_EQ(parse_schedule(text, "made.txt"), made);
  }
}

TEST(ParseSchedule, NamesFileLineAndTokenOfAMistake) {
  const auto refused = [](const char* text, const char* message) {
    EXPECT_THAT([&] { parse_schedule(text, "s.txt"); }, ThrowsMessage<ConfigError>(HasSubstr(message))) << text;
  };
  refused("0F0 0B0\n1F0 1X0\n", "s.txt:2: \"1X0\" is not accepted; write F, I, W or B");
  refused("0.1F0", "s.txt:1: \"0.1F0\" is not accepted");
  refused("0F0 0SEND_F0", "s.txt:1: \"0SEND_F0\" is not accepted");
  refused("0F", "s.txt:1: \"0F\" is not accepted");
  refused("-1F0", "s.txt:1: \"-1F0\" is not accepted");
  refused("# nothing\n", "s.txt: no instructions");
  refused("0F0 0I0\n", "0W0 is missing");
  refused("0I0 0F0 0W0\n", "rank 0 waits for ever at 0I0");
  EXPECT_THAT([] { read_schedule("/no/such/file"); }, ThrowsMessage<ConfigError>(HasSubstr("/no/such/file: cannot be read")));
}

}  // namespace
}  // namespace trivet::pipeline
