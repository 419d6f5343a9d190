// A rank that waits for long reports which rank it waits for. Ranks run as threads and as processes, with short times.
#include "comm/world_activity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "comm/threads/thread_memory.h"
#include "core/stream.h"
#include "tests/comm/ranks.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

Activity place(const std::string& group, uint32_t number) {
  Activity out;
  out.header = {.count = 4, .number = number, .operation = Operation::AllReduce};
  group.copy(out.group, sizeof out.group - 1);
  return out;
}

TEST(ActivityRecord, HoldsTheLastOperationAndCountsThem) {
  ActivityRecord record{};
  EXPECT_FALSE(record.read());
  const uint32_t before = record.version();
  record.write(place("data", 1));
  record.write(place("a name that is longer than there is space for it", 2));
  EXPECT_NE(record.version(), before);
  const auto last = record.read();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->header.number, 2u);
  EXPECT_STREQ(last->group, "a name that is longer than there is spa");
}

// Two threads of a rank write while a thread of another rank reads: the reader never sees a mixture of two operations.
TEST(ActivityRecord, IsNeverReadHalfWritten) {
  ActivityRecord record{};
  std::atomic<bool> over{false};
  std::vector<std::thread> writers;
  for (uint32_t first : {0u, 1u}) {
    writers.emplace_back([&, first] {
      for (uint32_t i = first; !over; i += 2) {
        Activity mine = place(std::to_string(i), i);
        mine.header.count = i;
        record.write(mine);
      }
    });
  }
  int read = 0;
  while (read < 20000) {
    const auto seen = record.read();
    if (!seen) continue;
    ++read;
    ASSERT_EQ(std::to_string(seen->header.number), seen->group);
    ASSERT_EQ(seen->header.count, seen->header.number);
  }
  over = true;
  for (auto& writer : writers) writer.join();
}

// Ranks that run no operations: tests record directly what each rank enters and waits for.
class Ranks {
 public:
  explicit Ranks(int size, milliseconds report_after = milliseconds(40)) {
    const auto memory = allocate_board(WorldActivity::bytes(size));
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<WorldActivity>(
          memory, WorldActivity::Options{.world_rank = rank,
                                         .world_size = size,
                                         .who = "a, pid " + std::to_string(100 + rank),
                                         .report_after = report_after,
                                         .report = [this, rank](const std::string& line) {
                                           lines_.push_back("rank " + std::to_string(rank) + " says: " + line);
                                         }}));
    }
  }
  WorldActivity& operator[](int rank) { return *ranks_[rank]; }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::unique_ptr<WorldActivity>> ranks_;
  std::vector<std::string> lines_;
};

// Looks again and again, as OperationWait::look does, until stop() is true or `time` has passed.
void look_for(
    WorldActivity::Wait& wait, const std::vector<int>& missing, milliseconds time,
    const std::function<bool()>& stop = [] { return false; }) {
  for (const auto end = WorldActivity::Clock::now() + time; WorldActivity::Clock::now() < end && !stop();) {
    wait.look(missing);
    std::this_thread::sleep_for(milliseconds(2));
  }
}

TEST(WorldActivity, NameARankThatEntersNothingAndWhereItWasLast) {
  Ranks ranks(2);
  ranks[1].enter(place("world", 3));
  WorldActivity::Wait wait(ranks[0], place("data", 17), milliseconds(600000));
  look_for(wait, {1}, milliseconds(20000), [&] { return !ranks.lines().empty(); });
  ASSERT_THAT(ranks.lines(), SizeIs(1));
  EXPECT_THAT(
      ranks.lines()[0],
      AllOf(StartsWith("rank 0 says: rank 1 (host a, pid 101) has not reached all_reduce of 4 float32, number 17 of group "
                       "\"data\", for "),
            HasSubstr("it has entered nothing since all_reduce of 4 float32, number 3 of group \"world\": it is computing "
                      "or stuck; giving up after 600 s")));
}

TEST(WorldActivity, SayThatARankIsInsideTheOperationThatItIsWaitedForIn) {
  Ranks ranks(2);
  ranks[1].enter(place("data", 17));
  WorldActivity::Wait wait(ranks[0], place("data", 17), milliseconds(600000));
  look_for(wait, {1}, milliseconds(20000), [&] { return !ranks.lines().empty(); });
  ASSERT_THAT(ranks.lines(), SizeIs(1));
  EXPECT_THAT(ranks.lines()[0],
              AllOf(HasSubstr("rank 1 (host a, pid 101) has not finished its part of all_reduce of 4 float32, "
                              "number 17 of group \"data\", for "),
                    HasSubstr("it has entered the operation and has done nothing since; giving up after 600 s")));
}

TEST(WorldActivity, SayNothingBeforeItsTime) {
  Ranks ranks(2);
  const auto start = WorldActivity::Clock::now();
  WorldActivity::Wait wait(ranks[0], place("data", 17), milliseconds(600000));
  look_for(wait, {1}, milliseconds(20000), [&] { return !ranks.lines().empty(); });
  EXPECT_GE(WorldActivity::Clock::now() - start, milliseconds(40));
}

TEST(WorldActivity, SayNothingOfARankThatGoesOnEntering) {
  Ranks ranks(2);
  WorldActivity::Wait wait(ranks[0], place("data", 17), milliseconds(600000));
  uint32_t number = 0;
  // Each look comes right after an operation: however slow this machine is, the rank has just made progress.
  for (const auto end = WorldActivity::Clock::now() + milliseconds(300); WorldActivity::Clock::now() < end;) {
    ranks[1].enter(place("other", ++number));
    wait.look({1});
  }
  EXPECT_THAT(ranks.lines(), IsEmpty());
}

TEST(WorldActivity, OneRankSaysItForAllAndAgainAfterLongerTimes) {
  Ranks ranks(3);
  WorldActivity::Wait first(ranks[0], place("data", 17), milliseconds(600000)),
      second(ranks[2], place("data", 17), milliseconds(600000));
  const auto start = WorldActivity::Clock::now();
  while (ranks.lines().size() < 3 && WorldActivity::Clock::now() - start < milliseconds(20000)) {
    first.look({1});
    second.look({1});
    std::this_thread::sleep_for(milliseconds(2));
  }
  EXPECT_GE(WorldActivity::Clock::now() - start, milliseconds(40 * 16)) << "the lines are due after 40 ms, 160 ms and 640 ms";
  ASSERT_THAT(ranks.lines(), SizeIs(3));
  for (const std::string& line : ranks.lines()) EXPECT_THAT(line, StartsWith(ranks.lines()[0].substr(0, 6)));
}

TEST(WorldActivity, NameTheRankThatIsStuckAndNotOnesThatWaitForIt) {
  Ranks ranks(3, milliseconds(300));
  WorldActivity::Wait middle(ranks[1], place("pair", 5), milliseconds(600000));  // rank 1 waits for rank 2
  WorldActivity::Wait end(ranks[0], place("data", 17), milliseconds(600000));    // rank 0 waits for rank 1
  const auto start = WorldActivity::Clock::now();
  while (ranks.lines().empty() && WorldActivity::Clock::now() - start < milliseconds(20000)) {
    middle.look({2});
    end.look({1});
    std::this_thread::sleep_for(milliseconds(1));
  }
  ASSERT_THAT(ranks.lines(), SizeIs(1));
  EXPECT_THAT(ranks.lines()[0], StartsWith("rank 1 says: rank 2 (host a, pid 102) has not reached"));
  EXPECT_THAT(ranks.lines()[0], HasSubstr("it has entered nothing yet: it is computing or stuck"));
  // If no rank computes, because all wait for each other in a circle, then a rank that waits is named, too.
  while (ranks.lines().size() < 2 && WorldActivity::Clock::now() - start < milliseconds(20000)) {
    middle.look({});
    end.look({1});
    std::this_thread::sleep_for(milliseconds(1));
  }
  ASSERT_THAT(ranks.lines(), SizeIs(2));
  EXPECT_THAT(ranks.lines()[1],
              AllOf(StartsWith("rank 0 says: rank 1 "),
                    HasSubstr("it is itself waiting for another rank, in all_reduce of 4 float32, number 5 of group "
                              "\"pair\"")));
}

// Rank 1 has begun to wait, and its thread has stood still since then, so that what it waits for is not the cause.
TEST(WorldActivity, NameARankThatStandsStillWhileItWaitsAsSoonAsOneThatComputes) {
  Ranks ranks(2, milliseconds(300));
  ranks[1].enter(place("pair", 5));
  WorldActivity::Wait still(ranks[1], place("pair", 5), milliseconds(600000));
  WorldActivity::Wait wait(ranks[0], place("data", 17), milliseconds(600000));
  look_for(wait, {1}, milliseconds(20000), [&] { return !ranks.lines().empty(); });
  ASSERT_THAT(ranks.lines(), SizeIs(1));
  EXPECT_THAT(ranks.lines()[0],
              HasSubstr("it has entered nothing since all_reduce of 4 float32, number 5 of group \"pair\": it "
                        "is computing or stuck"));
}

TEST(WorldActivity, HaveMorePatienceAfterALongWaitThatEndedWell) {
  Ranks ranks(2);
  {
    WorldActivity::Wait wait(ranks[0], place("data", 1), milliseconds(600000));
    std::this_thread::sleep_for(milliseconds(200));
    wait.ended_well();
  }
  const auto start = WorldActivity::Clock::now();
  WorldActivity::Wait wait(ranks[0], place("data", 2), milliseconds(600000));
  look_for(wait, {1}, milliseconds(20000), [&] { return !ranks.lines().empty(); });
  EXPECT_GE(WorldActivity::Clock::now() - start, milliseconds(400));
}

class StuckRank : public testing::TestWithParam<Kind> {};

TEST_P(StuckRank, IsNamedInALineAndTheJobGoesOnWhenItComes) {
  const SharedPage page(4096);
  struct Seen {
    std::atomic<int> lines;
    std::atomic<bool> good;
  };
  auto* seen = new (page.data()) Seen{};
  WorldOptions options;
  options.report_waits_after = milliseconds(50);
  options.on_long_wait = [seen](const std::string& line) {
    const bool names = line.find("rank 1 (host ") == 0 &&
                       line.find("barrier, number 2 of group \"world\"") != std::string::npos &&
                       line.find("since barrier, number 1 of group \"world\"") != std::string::npos;
    if (names) seen->good = true;
    ++seen->lines;
  };
  run_ranks(
      GetParam(), 3,
      [seen](World& world) {
        const auto stream = make_inline_stream();
        world.group().barrier(*stream);
        if (world.rank() == 1) {
          for (int i = 0; i < 20000 && !seen->good; ++i) std::this_thread::sleep_for(milliseconds(1));
        }
        world.group().barrier(*stream);
        world.close();
      },
      options);
  EXPECT_GE(seen->lines, 1);
  EXPECT_TRUE(seen->good);
}

INSTANTIATE_TEST_SUITE_P(Kinds, StuckRank, testing::ValuesIn(kAllKinds),
                         [](const auto& given) { return to_string(given.param); });

}  // namespace
}  // namespace trivet::comm
