#include "autotune/tune/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "autotune/tune/gaussian_process.h"
#include "autotune/tune/metric.h"

namespace trivet::autotune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// 5 x 5 x 4 x 3 points. Their log cost is smooth and has an interaction; the prediction gets a factor, a slope and one effect
// wrong.
struct Landscape {
  std::vector<Point> points;
  std::vector<double> costs;
  size_t best() const { return static_cast<size_t>(std::ranges::min_element(costs) - costs.begin()); }
};

Landscape landscape() {
  Landscape land;
  for (int a = 0; a < 5; ++a)
    for (int b = 0; b < 5; ++b)
      for (int c = 0; c < 4; ++c)
        for (int d = 0; d < 3; ++d) {
          const double cost = 0.05 * (a - 3) * (a - 3) + 0.03 * (b - 1) * (b - 1) + 0.1 * c - 0.04 * a * (c == 0 ? 1 : 0) +
                              (d == 1 ? 0.15 : 0.02 * d) + 0.01 * ((a * 7 + b * 5 + c * 3 + d) % 4);
          const double predicted = 2 + 0.02 * (a - 2) * (a - 2) + 0.05 * c;
          land.points.push_back(
              {{a / 2.0, b / 2.0, static_cast<double>(c), d == 1 ? 1.0 : 0.0, d == 2 ? 1.0 : 0.0}, predicted});
          land.costs.push_back(cost);
        }
  return land;
}

std::vector<size_t> tried(const Landscape& land, TunerType type, size_t trials, uint64_t seed = 1) {
  const auto tuner = make_tuner(type, land.points, seed);
  std::vector<Observation> history;
  std::vector<size_t> order;
  while (order.size() < trials) {
    const auto next = tuner->next(history);
    if (!next) break;
    order.push_back(*next);
    history.push_back({*next, land.costs[*next]});
  }
  return order;
}

TEST(Tuner, GridSearchGoesInOrderAndEveryTunerTriesEveryPointOnce) {
  Landscape land = landscape();
  land.points.resize(40);
  EXPECT_THAT(tried(land, TunerType::GridSearch, 3), ElementsAre(0, 1, 2));
  for (const TunerType type : {TunerType::GridSearch, TunerType::Random, TunerType::ModelBased}) {
    const auto order = tried(land, type, 1000);
    EXPECT_EQ(order.size(), 40u);
    EXPECT_EQ(std::set<size_t>(order.begin(), order.end()).size(), 40u);
  }
}

TEST(Tuner, ARandomOrderIsThatOfItsSeed) {
  const Landscape land = landscape();
  EXPECT_EQ(tried(land, TunerType::Random, 50, 7), tried(land, TunerType::Random, 50, 7));
  EXPECT_NE(tried(land, TunerType::Random, 50, 7), tried(land, TunerType::Random, 50, 8));
  EXPECT_NE(tried(land, TunerType::Random, 50, 7), tried(land, TunerType::GridSearch, 50));
}

TEST(Tuner, ModelBasedBeginsWithTheLowestPredictionAndFindsTheBestInATenthOfTheTrials) {
  const Landscape land = landscape();
  const auto order = tried(land, TunerType::ModelBased, land.points.size() / 10);
  EXPECT_EQ(land.points[order[0]].predicted, std::ranges::min_element(land.points, {}, &Point::predicted)->predicted);
  double best = 1e9;
  for (const size_t point : order) best = std::min(best, land.costs[point]);
  EXPECT_LE(best, land.costs[land.best()] + std::log(1 / 0.98));
}

// With equal predictions, both the first choice, by prediction alone, and the next, by expected improvement, go by memory.
TEST(Tuner, ModelBasedPrefersLessMemoryAmongEqualPoints) {
  std::vector<Point> points(4, {.features = {0}, .predicted = 1});
  for (size_t i = 0; i < points.size(); ++i) points[i].memory_bytes = std::array{30, 10, 40, 20}[i];
  const auto tuner = make_tuner(TunerType::ModelBased, points, 1);
  std::vector<Observation> history;
  for (const size_t expected : {1, 3, 0, 2}) {
    EXPECT_EQ(tuner->next(history), expected);
    history.push_back({expected, 1.0});
  }
}

// All predictions are equal, so only what the tuner learns from measurements can guide it.
TEST(Tuner, ModelBasedIsDrivenByWhatWasMeasured) {
  Landscape land = landscape();
  for (Point& point : land.points) point.predicted = 0;
  const auto order = tried(land, TunerType::ModelBased, 30);
  double best = 1e9;
  for (const size_t point : order) best = std::min(best, land.costs[point]);
  EXPECT_LE(best, land.costs[land.best()] + std::log(1 / 0.98));
}

TEST(Tuner, AfterABreakItGoesOnAsWithoutOne) {
  const Landscape land = landscape();
  const auto whole = tried(land, TunerType::ModelBased, 12);
  std::vector<Observation> history;
  for (size_t i = 0; i < 11; ++i) history.push_back({whole[i], land.costs[whole[i]]});
  EXPECT_EQ(make_tuner(TunerType::ModelBased, land.points, 1)->next(history), whole[11]);
}

TEST(Tuner, ConfigsThatCannotRunTeachNothingAndAreNotTriedAgain) {
  const Landscape land = landscape();
  const auto tuner = make_tuner(TunerType::ModelBased, land.points, 1);
  std::vector<Observation> history;
  const size_t first = *tuner->next(history);
  history.push_back({first, std::nullopt});
  const size_t second = *tuner->next(history);
  EXPECT_NE(first, second);
  EXPECT_GE(land.points[second].predicted, land.points[first].predicted);
}

// Trials whose times are not known could not run.
TEST(StopsEarly, AfterSoManyTrialsWithoutImprovement) {
  const auto stops = [](const std::vector<std::optional<double>>& costs, int64_t patience) {
    std::vector<Observation> history;
    for (const std::optional<double>& cost : costs) history.push_back({history.size(), cost});
    return stops_early(history, patience);
  };
  constexpr std::nullopt_t kFailed = std::nullopt;
  EXPECT_TRUE(stops({3.0, 2.0, 2.5, kFailed}, 2));
  EXPECT_FALSE(stops({3.0, 2.0, 2.5, kFailed}, 3)) << "the second trial is among the last three";
  EXPECT_FALSE(stops({3.0, 2.0, 2.5, kFailed}, 0));
  EXPECT_FALSE(stops({3.0, 2.0, 2.5, kFailed, 1.9}, 2));
  EXPECT_FALSE(stops({kFailed, kFailed, kFailed}, 1)) << "nothing ran yet";
  EXPECT_TRUE(stops({2.0, 3.0, 2.5}, 1)) << "better than the last, but not than the best";
  EXPECT_TRUE(stops({2.0, 2.5}, 1));
  EXPECT_TRUE(stops({2.0, 2.0}, 1)) << "an equal time is no improvement";
  EXPECT_FALSE(stops({2.0, 1.5}, 1));
  EXPECT_FALSE(stops({2.0}, 1)) << "there is nothing to compare with";
}

TEST(GaussianProcess, GoesThroughWhatItKnowsAndIsLessSureElsewhere) {
  const std::vector<std::vector<double>> points{{0}, {1}, {2}, {3}};
  const GaussianProcess process(points, {0.5, 0.6, 0.7, 0.8});
  for (size_t i = 0; i < points.size(); ++i) EXPECT_NEAR(process.at(points[i]).mean, 0.5 + 0.1 * static_cast<double>(i), 0.03);
  EXPECT_NEAR(process.at(std::vector<double>{4}).mean, 0.9, 0.08);  // a straight line continues
  EXPECT_GT(process.at(std::vector<double>{8}).deviation, 3 * process.at(std::vector<double>{1}).deviation);
}

// One value v at x has the log likelihood -(v^2 / V + log V) / 2 with V = 25 + linear^2 x^2 + smooth^2 + noise^2. At x = 100
// the three values of `linear` make V about 29, 125 and 925, and v^2 = 200 is likeliest with 125. If log V counted only half,
// 925 would be likelier. V below 200 also prefers the largest `smooth` and `noise`. The deviation at 0 shows which scales were
// chosen.
TEST(GaussianProcess, ChoosesTheScalesOfTheHighestLikelihood) {
  const GaussianProcess process({{100}}, {std::sqrt(200)});
  const double at_zero = 25 + 0.4 * 0.4, at_100 = 25 + 0.1 * 0.1 * 100 * 100 + 0.4 * 0.4 + 0.03 * 0.03, between = 25;
  EXPECT_NEAR(process.at(std::vector<double>{0}).deviation, std::sqrt(at_zero - between * between / at_100), 1e-9);
}

TEST(Metric, MoreThroughputAndFlopsAndLessLatencyAreBetter) {
  TrialConfig trial;
  trial.train_batch_size = 8;
  trial.model_flops = 1e9;
  const Metrics fast = metrics_of(trial, 0.5, 2), slow = metrics_of(trial, 1.0, 2);
  EXPECT_EQ(fast.throughput, 16);
  EXPECT_EQ(fast.latency, 0.5);
  EXPECT_EQ(fast.flops_per_gpu, 1e9);
  for (const TuningMetric metric : {TuningMetric::Throughput, TuningMetric::Latency, TuningMetric::Flops}) {
    EXPECT_TRUE(is_better(metric, fast.of(metric), slow.of(metric)));
    EXPECT_FALSE(is_better(metric, slow.of(metric), fast.of(metric)));
    EXPECT_FALSE(is_better(metric, fast.of(metric), fast.of(metric)));
    EXPECT_LT(log_cost(metric, trial, 0.5), log_cost(metric, trial, 1.0));
  }
  TrialConfig larger = trial;  // twice the batch in 1.5 times the seconds
  larger.train_batch_size = 16;
  larger.model_flops = 2e9;
  EXPECT_LT(log_cost(TuningMetric::Throughput, larger, 0.75), log_cost(TuningMetric::Throughput, trial, 0.5));
  EXPECT_LT(log_cost(TuningMetric::Flops, larger, 0.75), log_cost(TuningMetric::Flops, trial, 0.5));
  EXPECT_GT(log_cost(TuningMetric::Latency, larger, 0.75), log_cost(TuningMetric::Latency, trial, 0.5));
}

}  // namespace
}  // namespace trivet::autotune
