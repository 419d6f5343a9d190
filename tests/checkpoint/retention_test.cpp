// Which steps a save removes. A step is written as what it is and how many updates it holds: "c5" is clean after 5 updates,
// "s5" was saved while steps were skipped, "x" is damaged.
#include "engine/checkpoint/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace trivet::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The steps are numbered 10, 20, 30 ...
std::vector<int64_t> removed(const std::vector<std::string>& kinds, int64_t keep, int64_t best = 0) {
  std::vector<SavedStep> steps;
  for (const std::string& kind : kinds) {
    SavedStep step{static_cast<int64_t>(steps.size() + 1) * 10, std::nullopt};
    if (kind[0] != 'x') step.content = SavedStep::Content{std::stoll(kind.substr(1)), kind[0] == 'c'};
    steps.push_back(step);
  }
  return steps_to_remove(steps, keep, best);
}

TEST(Retention, LeavesTheNewestCleanSteps) {
  EXPECT_THAT(removed({"c1", "c2", "c3", "c4"}, 2), ElementsAre(10, 20));
  EXPECT_THAT(removed({"c1", "c2", "c3", "c4"}, 3), ElementsAre(10));
  EXPECT_THAT(removed({"c1", "c2"}, 2), IsEmpty());
  EXPECT_THAT(removed({"c1"}, 1), IsEmpty());
}

TEST(Retention, StepsSavedWhileSkippingNeverDisplaceCleanOnes) {
  EXPECT_THAT(removed({"c1", "c2", "s2"}, 2), IsEmpty());
  EXPECT_THAT(removed({"c1", "c2", "s2", "s2", "s2"}, 2), ElementsAre(30, 40));
  EXPECT_THAT(removed({"c1", "c2", "c3", "s3", "s3"}, 2), ElementsAre(10, 40));
}

TEST(Retention, ALaterCleanStepReplacesThoseSavedWhileSkipping) {
  EXPECT_THAT(removed({"c1", "c2", "s2", "c3"}, 2), ElementsAre(10, 30));
}

// A step saved right after a skipped one holds the weights of the last update, which perhaps no other step has.
TEST(Retention, StepsThatAreNotCleanStayIfNoOtherHoldsTheirWeights) {
  EXPECT_THAT(removed({"c1000", "s1999", "c2999"}, 3), IsEmpty());
  EXPECT_THAT(removed({"c1", "s5", "c9"}, 1), ElementsAre(20));
  EXPECT_THAT(removed({"s1", "s2", "s3", "s4", "s5"}, 3), ElementsAre(10, 20));
  EXPECT_THAT(removed({"s1", "s2", "s2", "s2", "s3"}, 3), ElementsAre(20, 30));
  EXPECT_THAT(removed({"c1", "c2", "s3", "s4", "s5"}, 2), ElementsAre(30));
  EXPECT_THAT(removed({"s1", "c2", "s2", "c3", "c4"}, 3), ElementsAre(10, 30));
}

// The newest step may hold weights that give no finite loss. Only a later update shows that they are good.
TEST(Retention, TheNewestStepThatWasTrainedFromStays) {
  EXPECT_THAT(removed({"c1", "c2", "c3"}, 1), ElementsAre(10));
  EXPECT_THAT(removed({"c1", "c2", "s2", "s2"}, 1), ElementsAre(30));
  EXPECT_THAT(removed({"c1", "c2", "c2", "c2"}, 1), ElementsAre(20, 30));
  EXPECT_THAT(removed({"c1", "c2", "c2", "c2", "s2"}, 2), ElementsAre(20));
}

TEST(Retention, DamagedStepsDoNotCountAndGoWhenEnoughCleanOnesAreNewer) {
  EXPECT_THAT(removed({"c1", "x", "c3"}, 2), IsEmpty());
  EXPECT_THAT(removed({"c1", "x", "c3", "c4"}, 2), ElementsAre(10, 20));
  EXPECT_THAT(removed({"x", "c2", "c3", "x", "c5"}, 2), ElementsAre(10, 20));
}

TEST(Retention, TheBestStepStaysWhateverTheOthersDo) {
  EXPECT_THAT(removed({"c1", "c2", "c3", "c4"}, 2, 10), ElementsAre(20));
  EXPECT_THAT(removed({"c1", "c2", "c3", "c4"}, 2, 30), ElementsAre(10, 20));  // it takes no place of its own
  EXPECT_THAT(removed({"x", "c2", "c3", "x", "c5"}, 2, 10), ElementsAre(20));
}

}  // namespace
}  // namespace trivet::checkpoint
