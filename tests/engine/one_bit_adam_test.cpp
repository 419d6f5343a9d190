// 1-bit Adam: whole runs against the rule in double, with gradients that are known exactly; restarts; and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "comm/world.h"
#include "core/error.h"
#include "engine/engine.h"
#include "tests/engine/distance_run.h"
#include "tests/engine/small_plan.h"
#include "tests/support/temporary_folder.h"

namespace trivet {
namespace {

using test::DistanceRun;
using testing::HasSubstr;
using testing::ThrowsMessage;

// One block of signs and a part of the next.
std::vector<ParameterSpec> one_weight() {
  return {{.name = "weight", .shape = {300}, .init = {Init::Kind::Normal, 0.5}, .decay = true}};
}

Config signs_config() {
  Config config;
  config.source = "signs";
  config.batch = {.train_batch_size = 12, .micro_batch_size = 2};
  config.optimizer.type = OptimizerType::OneBitAdam;
  config.optimizer.lr = 1e-2;
  config.optimizer.weight_decay = 0.1;
  config.optimizer.decay_all = true;
  config.optimizer.freeze_step = 4;
  config.gradient_clipping = 0;
  return config;
}

DistanceRun adam_run(int ranks) { return {.config = signs_config(), .parameters = one_weight(), .ranks = ranks}; }

// The rule in double (engine/optimizer/one_bit_adam.h, kernels/signs.h).
class AdamReference : public test::DistanceReference {
 public:
  using DistanceReference::DistanceReference;

  void step(int64_t step) {
    const OptimizerConfig& o = run_.config.optimizer;
    const std::vector<std::vector<double>> own = gradients(step);
    const bool signs = step >= o.freeze_step;
    const double factor = clip(own, signs);
    const std::vector<double> mean = mean_of(own);
    m_.resize(mean.size()), v_.resize(mean.size());
    for (size_t w = 0; w < mean.size() && !signs; ++w) {
      const double g = mean[w] * factor;
      m_[w] = o.beta1 * m_[w] + (1 - o.beta1) * g;
      v_[w] = o.beta2 * v_[w] + (1 - o.beta2) * g * g;
    }
    if (signs) m_ = average_signs(own_momenta(m_, own, factor), v_);
    for (size_t w = 0; w < mean.size(); ++w)
      weights_[w] -= o.lr * (m_[w] / (std::sqrt(v_[w]) + o.epsilon) + o.weight_decay * weights_[w]);
  }

 private:
  std::vector<double> m_, v_;
};

// A step moves a weight by lr x m / sqrt(v), a few times lr here. Momenta in float32 differ from those in double by some
// roundings of numbers below 1, which 1 / sqrt(v) makes larger by up to 100 times: 1e-6 in 12 steps is more than was seen.
constexpr double kSignsTolerance = 1e-5;

TEST(OneBitAdam, FollowsTheRuleInDouble) {
  for (const int ranks : {1, 2, 3}) test::expect_as_reference<AdamReference>(adam_run(ranks), kSignsTolerance);
}

TEST(OneBitAdam, ClipsByTheRootMeanSquareOfTheRanksNorms) {
  DistanceRun run = adam_run(2);
  run.config.gradient_clipping = 3;
  test::expect_as_reference<AdamReference>(run, kSignsTolerance);
}

TEST(OneBitAdam, IsAdamUntilTheVarianceStays) {
  DistanceRun whole = adam_run(2), later = whole;
  later.config.optimizer.freeze_step = 8;
  const auto a = test::train(whole), b = test::train(later);
  for (int64_t step = 0; step <= whole.config.optimizer.freeze_step; ++step)
    EXPECT_EQ(a.weights[step], b.weights[step]) << step;
  EXPECT_NE(a.weights[5], b.weights[5]);
}

// The run's first 7 steps, saved to `folder`.
void save_adam_run(DistanceRun run, const std::string& folder) {
  run.steps = 7;
  run.save_to = folder;
  test::train(run);
}

TEST(OneBitAdam, ContinuesWithTheErrorsOfACheckpoint) {
  for (const int ranks : {1, 3}) {
    const test::TemporaryFolder folder;
    DistanceRun run = adam_run(ranks);
    const auto whole = test::train(run);
    save_adam_run(run, folder.path());
    run.load_from = folder.path();
    EXPECT_EQ(test::train(run).weights.back(), whole.weights.back()) << ranks << " ranks";
  }
}

TEST(OneBitAdam, ErrorsBelongToTheNumberOfRanksThatHaveThem) {
  const test::TemporaryFolder folder;
  save_adam_run(adam_run(3), folder.path());
  for (const int ranks : {2, 1}) {
    DistanceRun run = adam_run(ranks);
    run.load_from = folder.path();
    EXPECT_ANY_THROW(test::train(run));
  }
}

// All other ranks skip the step, too, and what has not been sent stays where it is.
TEST(OneBitAdam, ASkippedStepChangesNothing) {
  std::vector<std::vector<float>> weights;
  comm::run_threads(2, [&](comm::World& world) {
    model::Model model = test::distance_model(one_weight());
    Plan plan = make_plan(signs_config(), model, world.size());
    Engine engine(std::move(plan), std::move(model), world);
    for (int64_t step = 0; step < 8; ++step) {
      test::DistanceBatch batch(engine.plan(), 300, world.rank(), step);
      if (step == 6 && world.rank() == 1) batch.inputs[0][3] = std::numeric_limits<float>::infinity();
      const std::vector<float> before = engine.weight("distance.weight");
      EXPECT_EQ(engine.train_batch(batch.views).skipped, step == 6);
      const std::vector<float> after = engine.weight("distance.weight");
      if (step == 6) {
        EXPECT_EQ(before, after);
      }
      if (world.rank() == 0) weights.push_back(after);
    }
  });
  for (const float weight : weights.back()) EXPECT_TRUE(std::isfinite(weight));
}

// Instead of 4 bytes for each element, an update sends 36 bytes for 256, twice.
TEST(OneBitAdam, SendsSignsOnly) {
  for (const int ranks : {2, 4}) {
    Config config = signs_config();
    config.batch.train_batch_size = 16;
    const Plan signs = make_plan(config, test::distance_model(one_weight()), ranks);
    config.optimizer.type = OptimizerType::AdamW;
    const Plan adam = make_plan(config, test::distance_model(one_weight()), ranks);
    const auto sent = [](const Plan& plan) {
      int64_t bytes = 0;
      for (const auto& [line, traffic] : plan.ranks[0].traffic) bytes += traffic.bytes_sent;
      return bytes;
    };
    const int64_t shard = 256;  // of 300 elements, in whole blocks
    EXPECT_EQ(sent(adam) - sent(signs), 2 * (ranks - 1) * shard * 4 - 2 * (ranks - 1) * shard / 256 * 36);
  }
}

TEST(OneBitAdam, TrainsATransformerOverAPipeline) {
  Config config = small_config();
  config.optimizer.type = OptimizerType::OneBitAdam;
  config.optimizer.freeze_step = 10;
  config.optimizer.lr = 5e-3;
  config.parallel.pipeline = 2;
  config.reproducible = Reproducible::Run;
  comm::run_threads(4, [&](comm::World& world) {
    Engine engine(plan_of(config, 4), model_of(config), world);
    double first = 0, last = 0;
    for (int64_t step = 0; step < 30; ++step) {
      std::vector<int32_t> tokens(32), targets(32);
      for (int32_t t = 0; t < 32; ++t) tokens[t] = t % 5, targets[t] = (t + 1) % 5;
      const std::vector<Microbatch> batch(engine.plan().batch.gradient_accumulation_steps,
                                          {{tokens.data(), DType::Int32, {1, 32}}, {targets.data(), DType::Int32, {1, 32}}, 0});
      last = engine.train_batch(batch).loss;
      if (step == 0) first = last;
    }
    EXPECT_LT(last, 0.8 * first);
    EXPECT_EQ(engine.measured_memory(), engine.plan().rank(world.rank()).memory);
  });
}

TEST(OneBitAdam, RefusesWhatItCannotShare) {
  const auto refused = [](auto&& change, const char* message) {
    Config config = small_config();
    config.optimizer.type = OptimizerType::OneBitAdam;
    change(config);
    EXPECT_THAT([&] { plan_of(config, 2); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  refused([](Config& c) { c.zero.stage = 1; }, "optimizer.type: \"OneBitAdam\" is not accepted with zero_optimization.stage 1");
  refused([](Config& c) { c.parallel.tensor = 2; }, "\"OneBitAdam\" is not accepted with parallel.tensor 2");
  refused([](Config& c) { c.reproducible = Reproducible::Layout; }, "\"OneBitAdam\" is not accepted with reproducible");
}

}  // namespace
}  // namespace trivet
