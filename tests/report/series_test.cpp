#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "report/config_differences.h"
#include "report/run_data.h"
#include "report/thinned_series.h"

namespace trivet::report {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<int> points_after(int count, size_t most) {
  ThinnedSeries<int> series(most);
  for (int i = 0; i < count; ++i) series.add(i);
  return series.points();
}

TEST(ThinnedSeries, KeepsAllPointsThenEverySecondThenEveryFourthAndAlwaysTheLast) {
  EXPECT_THAT(points_after(0, 4), IsEmpty());
  EXPECT_THAT(points_after(4, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(points_after(5, 4), ElementsAre(0, 2, 4));
  EXPECT_THAT(points_after(6, 4), ElementsAre(0, 2, 4, 5));
  EXPECT_THAT(points_after(8, 4), ElementsAre(0, 2, 4, 6, 7));
  EXPECT_THAT(points_after(9, 4), ElementsAre(0, 4, 8));
  EXPECT_THAT(points_after(1001, 4), ElementsAre(0, 256, 512, 768, 1000));
}

TEST(ThinnedSeries, SaysHowManyPointsThereWereAndWhichAreKept) {
  ThinnedSeries<int> series(4);
  EXPECT_TRUE(series.empty());
  for (int i = 0; i < 9; ++i) series.add(i);
  EXPECT_EQ(series.count(), 9);
  EXPECT_EQ(series.stride(), 4);
  EXPECT_EQ(series.last(), 8);
}

TEST(RunData, CountsSkippedStepsThatAreNotDrawnAndKeepsTheNewestNotes) {
  RunData run;
  run.steps = ThinnedSeries<StepPoint>(4);
  for (int64_t step = 1; step <= 1000; ++step) {
    add(run, StepPoint{.step = step, .skipped = step % 2 == 0});
    add(run, Note{step, "note", ""});
  }
  EXPECT_EQ(run.skipped_steps, 500);
  EXPECT_EQ(run.notes.size(), 500u);
  EXPECT_EQ(run.notes.back().step, 1000);
}

TEST(RunData, WithoutAFiniteLossThereIsNoBestEvaluation) {
  RunData run;
  add(run, EvaluationPoint{.step = 4, .loss = NAN, .without_targets = true});
  EXPECT_TRUE(std::isnan(run.best_validation_loss));
  EXPECT_EQ(run.best_validation_step, 0);
}

TEST(RunData, AnEvaluationThatIsNotFiniteIsNotTheBest) {
  RunData run;
  for (const double loss : {double(NAN), 3.0, double(NAN), 2.0, 4.0})
    add(run, EvaluationPoint{.step = std::isnan(loss) ? 0 : int64_t(loss * 10), .loss = loss});
  EXPECT_EQ(run.best_validation_loss, 2);
  EXPECT_EQ(run.best_validation_step, 20);
}

TEST(ConfigDifferences, NamesTheKeysWhoseValuesDifferAndThoseThatAreMissing) {
  const std::string configs[] = {R"({"model": {"layers": 4, "type": "gpt"}, "seed": 1})",
                                 R"({"model": {"layers": 8, "type": "gpt"}, "betas": [0.9, 0.99]})"};
  EXPECT_THAT(config_differences(configs), ElementsAre(ElementsAre("betas", "", "[0.9,0.99]"),
                                                       ElementsAre("model.layers", "4", "8"), ElementsAre("seed", "1", "")));
}

TEST(ConfigDifferences, ATextThatIsNoConfigHasNoKeys) {
  const std::string configs[] = {std::string(100, '[') + std::string(100, ']'), "{", "{\"seed\": 1}"};
  EXPECT_THAT(config_differences(configs), ElementsAre(ElementsAre("seed", "", "", "1")));
}

}  // namespace
}  // namespace trivet::report
