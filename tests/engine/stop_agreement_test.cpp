// Ranks that are asked to stop at different steps save and end after the same step.
#include "trainer/stop_agreement.h"

#include <gtest/gtest.h>

#include <csignal>
#include <mutex>
#include <vector>

#include "comm/world.h"

namespace trivet {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// The clock of one rank, whose steps take as long as the test says.
class StepClock final : public Clock {
 public:
  nanoseconds now() const override { return now_; }
  int64_t unix_seconds() const override { return 0; }
  void sleep(nanoseconds) const override {}
  void pass(nanoseconds time) { now_ += time; }

 private:
  nanoseconds now_{0};
};

struct AskedRank {
  nanoseconds step{milliseconds(500)};
  int64_t end_at = -1, save_at = -1;  // the step during which it is asked; -1: never
};

struct AgreedStop {
  int64_t ended_after = -1;
  std::vector<int64_t> saved_after;
  bool operator==(const AgreedStop&) const = default;
};

// Each rank has a request of its own, as processes have.
std::vector<AgreedStop> run(const std::vector<AskedRank>& ranks, int64_t steps) {
  std::vector<AgreedStop> outcomes(ranks.size());
  comm::run_threads(static_cast<int>(ranks.size()), [&](comm::World& world) {
    const AskedRank& rank = ranks[world.rank()];
    AgreedStop& outcome = outcomes[world.rank()];
    StopRequest request;
    StepClock clock;
    StopAgreement agreement(&request, world.group(), clock);
    for (int64_t step = 1; step <= steps && outcome.ended_after < 0; ++step) {
      if (step == rank.end_at) request.end(SIGTERM);
      if (step == rank.save_at) request.save();
      clock.pass(rank.step);
      const StopDecision decision = agreement.after_step();
      if (decision.save) outcome.saved_after.push_back(step);
      if (decision.end_signal == SIGTERM) outcome.ended_after = step;
    }
  });
  return outcomes;
}

TEST(StopAgreement, OneRankIsAskedAndAllEndAfterTheSameStep) {
  for (size_t asked = 0; asked < 3; ++asked) {
    std::vector<AskedRank> ranks(3);
    ranks[asked].end_at = 4;
    EXPECT_EQ(run(ranks, 10), std::vector<AgreedStop>(3, AgreedStop{4, {}})) << "rank " << asked;
  }
}

TEST(StopAgreement, RanksAskedAtDifferentStepsEndAfterTheFirst) {
  EXPECT_EQ(run({{.end_at = 6}, {.end_at = 3}, {.end_at = 5}}, 10), std::vector<AgreedStop>(3, AgreedStop{3, {}}));
}

TEST(StopAgreement, ASaveIsDoneOnceAndTheRunGoesOn) {
  EXPECT_EQ(run({{}, {.save_at = 2}}, 6), std::vector<AgreedStop>(2, AgreedStop{-1, {2}}));
  EXPECT_EQ(run({{.save_at = 2}, {.save_at = 2}}, 6), std::vector<AgreedStop>(2, AgreedStop{-1, {2}}));
  EXPECT_EQ(run({{.save_at = 5}, {.save_at = 2}}, 6), std::vector<AgreedStop>(2, AgreedStop{-1, {2, 5}}));
}

TEST(StopAgreement, WithoutARequestNothingIsExchanged) {
  comm::run_threads(2, [](comm::World& world) {
    StopAgreement agreement(nullptr, world.group());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(agreement.after_step().end_signal, 0);
    EXPECT_EQ(world.group().traffic().operations, 0);
  });
}

// With steps of 1 ms, ranks meet about every 250 steps once they know how long steps take, by the clock of the slowest rank.
TEST(StopAgreement, ShortStepsMeetSeldomAndByTheSlowestRanksClock) {
  comm::run_threads(2, [](comm::World& world) {
    StopRequest request;
    StepClock clock;
    StopAgreement agreement(&request, world.group(), clock);
    for (int64_t step = 1; step <= 2000; ++step) {
      clock.pass(world.rank() == 0 ? milliseconds(1) : nanoseconds(1000));
      agreement.after_step();
    }
    EXPECT_GE(world.group().traffic().operations, 2000 / 250);
    EXPECT_LE(world.group().traffic().operations, 2000 / 250 + 9);  // 1, 2, 4 ... 128, 250, 250 ...
  });
}

TEST(StopAgreement, ARequestAfterManyShortStepsIsHeededWithinTheSpacing) {
  const auto outcomes = run({{.step = milliseconds(1)}, {.step = milliseconds(1), .end_at = 1000}}, 3000);
  EXPECT_EQ(outcomes[0], outcomes[1]);
  EXPECT_GE(outcomes[0].ended_after, 1000);
  EXPECT_LE(outcomes[0].ended_after, 1250);
}

TEST(StopAgreement, ThreadsOfOneProcessShareTheRequest) {
  StopRequest request;
  EXPECT_FALSE(request.is_heard());
  comm::run_threads(3, [&](comm::World& world) {
    StepClock clock;
    StopAgreement agreement(&request, world.group(), clock);
    EXPECT_TRUE(request.is_heard());
    int saves = 0;
    for (int64_t step = 1; step <= 6; ++step) {
      if (step == 3 && world.rank() == 1) request.save();
      clock.pass(StopAgreement::kSpacing);
      saves += agreement.after_step().save;
    }
    EXPECT_EQ(saves, 1);
  });
  EXPECT_FALSE(request.is_heard());
}

TEST(StopAgreement, OneRankSavesOnceForEachRequest) {
  StopRequest request;
  comm::run_threads(1, [&](comm::World& world) {
    StepClock clock;
    StopAgreement agreement(&request, world.group(), clock);
    int saves = 0;
    for (int64_t step = 1; step <= 6; ++step) {
      if (step == 2 || step == 5) request.save();
      saves += agreement.after_step().save;
    }
    EXPECT_EQ(saves, 2);
  });
}

TEST(StopRequest, TheFirstSignalIsTheReason) {
  StopRequest request;
  request.end(SIGINT);
  request.end(SIGTERM);
  EXPECT_EQ(request.signal(), SIGINT);
}

}  // namespace
}  // namespace trivet
