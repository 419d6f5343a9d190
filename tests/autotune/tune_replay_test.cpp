// Replays the tuners on a space in which every config was measured (bench/tune).
#include <gtest/gtest.h>

#include "bench/tuning_table.h"

namespace trivet::bench {
namespace {

constexpr const char* kTable = TRIVET_SOURCE_DIR "/bench/results/tuning_space.json";

class Replay : public testing::Test {
 protected:
  TuningTable table = read_tuning_table(kTable);
};

TEST_F(Replay, ModelBasedReaches98PercentOfTheBestWithinATenthOfTheTrials) {
  ASSERT_GE(table.seconds.size(), 200u);
  const std::vector<double> curve = replay(table, TunerType::ModelBased, 1, table.seconds.size() / 10);
  EXPECT_GE(curve.back(), 0.98);
}

TEST_F(Replay, ModelBasedIsAheadOfAnOrderThatKnowsNothing) {
  const size_t tenth = table.seconds.size() / 10;
  const double model_based = replay(table, TunerType::ModelBased, 1, tenth).back();
  EXPECT_GE(model_based, replay(table, TunerType::GridSearch, 1, tenth).back());
  double mean = 0;
  constexpr int kSeeds = 100;
  for (int seed = 1; seed <= kSeeds; ++seed)
    mean += replay(table, TunerType::Random, static_cast<uint64_t>(seed), tenth).back() / kSeeds;
  EXPECT_GE(model_based, mean);
}

}  // namespace
}  // namespace trivet::bench
