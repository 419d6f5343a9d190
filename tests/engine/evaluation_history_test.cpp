// Which evaluation is the best, and when a run is out of patience: the rules of Hugging Face's EarlyStoppingCallback.
#include "trainer/evaluation_history.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace trivet::trainer {
namespace {

TrainingConfig stopping(int64_t patience, double threshold = 0) {
  TrainingConfig training;
  training.early_stopping_patience = patience;
  training.early_stopping_threshold = threshold;
  return training;
}

// The number of the evaluation after which the run is out of patience; 0: it never is.
int stops_after(const std::vector<double>& losses, int64_t patience, double threshold = 0) {
  EvaluationHistory history(stopping(patience, threshold), false);
  for (size_t i = 0; i < losses.size(); ++i) {
    history.add(static_cast<int64_t>(i) + 1, losses[i]);
    if (history.is_out_of_patience()) return static_cast<int>(i) + 1;
  }
  return 0;
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(EvaluationHistory, AnEvaluationWithoutALossDecidesNothing) {
  EvaluationHistory history(stopping(2), true);
  history.add_nothing(1);
  EXPECT_FALSE(history.keeps(1));
  history.add(2, 5);
  for (int64_t step = 3; step < 9; ++step) history.add_nothing(step);
  EXPECT_FALSE(history.is_out_of_patience());
  EXPECT_EQ(history.state(), (EvaluationState{.step = 8, .best_step = 2, .best_loss = 5, .without_improvement = 0}));
}

struct Patience {
  std::vector<double> losses;
  int64_t patience;
  double threshold;
  int stops_after;
  const char* because;
};

TEST(EvaluationHistory, ARunEndsAfterAsManyEvaluationsWithoutImprovementAsItsPatience) {
  for (const Patience& row : {Patience{{9}, 1, 0, 0, "a first loss is an improvement"},
                              {{9, 9}, 1, 0, 2, "an equal loss is none"},
                              {{9, 10}, 1, 0, 2, "a higher loss is none"},
                              {{5, 6, 4, 5, 5}, 2, 0, 5, "an improvement begins the count again"},
                              {{5, 6, 4, 5, 3, 4}, 2, 0, 0, "each improvement does"},
                              {{5, 6, 5.5, 5.2, 3}, 3, 0, 4, "falling again is not falling below the best"},
                              {{5, 4.5, 4, 3.5}, 3, 0.5, 4, "a slow fall moves the best without being an improvement"},
                              {{5, 4.25, 3.5, 2.75}, 1, 0.5, 0, "an improvement is more than the threshold below the best"},
                              {{5, 4.75, 4.125}, 2, 0.5, 0, "of which 4.75 is none, and 4.125 is one"},
                              {{1, 2, 3, 4, 5, 6}, 0, 0, 0, "without patience a run never ends"}})
    EXPECT_EQ(stops_after(row.losses, row.patience, row.threshold), row.stops_after) << row.because;
}

TEST(EvaluationHistory, ALossThatIsNotFiniteIsNeverTheBest) {
  EXPECT_EQ(stops_after({kNan, kInfinity}, 2), 2);
  EXPECT_EQ(stops_after({5, kNan, -kInfinity}, 2), 3);
  EvaluationHistory history(stopping(0), true);
  history.add(3, kNan);
  EXPECT_EQ(history.state().best_step, 0);
  history.add(6, 5);
  history.add(9, -kInfinity);
  EXPECT_EQ(history.state(), (EvaluationState{.step = 9, .best_step = 6, .best_loss = 5, .without_improvement = 1}));
}

TEST(EvaluationHistory, WithoutPatienceARunNeverEnds) { EXPECT_EQ(stops_after({1, 2, 3, 4, 5, 6}, 0), 0); }

TEST(EvaluationHistory, TheBestStepIsTheFirstWithTheLowestLoss) {
  EvaluationHistory history(stopping(0), true);
  EXPECT_TRUE(history.decides());
  history.add(10, 3);
  EXPECT_TRUE(history.keeps(10));
  history.add(20, 3);
  EXPECT_TRUE(history.keeps(10));
  EXPECT_FALSE(history.keeps(20));
  history.add(30, 2);
  EXPECT_TRUE(history.keeps(30));
  EXPECT_FALSE(EvaluationHistory(stopping(0), false).decides());
  EXPECT_TRUE(EvaluationHistory(stopping(1), false).decides());
}

TEST(EvaluationHistory, StepsAreKeptOnlyIfThatIsAskedFor) {
  EvaluationHistory history(stopping(2), false);
  history.add(10, 3);
  EXPECT_EQ(history.state().best_step, 10);
  EXPECT_FALSE(history.keeps(10));
}

TEST(EvaluationHistory, GoesOnFromWhatACheckpointKept) {
  EvaluationHistory before(stopping(3), true), after(stopping(3), true);
  for (const double loss : {5.0, 4.0, 4.5}) before.add(before.state().step + 1, loss);
  after.restore(before.state());
  for (EvaluationHistory* history : {&before, &after}) {
    history->add(4, 4.25);
    EXPECT_FALSE(history->is_out_of_patience());
    history->add(5, 4.125);
    EXPECT_TRUE(history->is_out_of_patience());
    EXPECT_TRUE(history->keeps(2));
  }
}

}  // namespace
}  // namespace trivet::trainer
