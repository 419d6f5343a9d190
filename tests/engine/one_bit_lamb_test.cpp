// 1-bit LAMB: whole runs against the rule in double, with gradients that are known exactly, and against DeepSpeed; layouts;
// restarts; and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "comm/world.h"
#include "core/error.h"
#include "engine/engine.h"
#include "engine/optimizer/one_bit_lamb.h"
#include "tests/engine/distance_run.h"
#include "tests/engine/small_plan.h"
#include "tests/support/temporary_folder.h"

namespace trivet {
namespace {

using test::DistanceRun;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Two decay, two do not. The trust ratio of "zeros" is 1 in the first update, whose weights are 0.
std::vector<ParameterSpec> four_weights() {
  return {{.name = "ones", .shape = {300}, .init = {Init::Kind::Ones}, .decay = true},
          {.name = "zeros", .shape = {5}, .init = {Init::Kind::Zeros}, .decay = false},
          {.name = "normal", .shape = {600}, .init = {Init::Kind::Normal, 0.5}, .decay = true},
          {.name = "gains", .shape = {40}, .init = {Init::Kind::Ones}, .decay = false}};
}

DistanceRun lamb_run(int ranks) {
  DistanceRun run{.parameters = four_weights(), .ranks = ranks, .steps = 24};
  run.config.source = "signs";
  run.config.batch = {.train_batch_size = 12, .micro_batch_size = 2};
  OptimizerConfig& optimizer = run.config.optimizer;
  optimizer.type = OptimizerType::OneBitLamb;
  optimizer.lr = 2e-2;
  optimizer.beta2 = 0.9;  // so that the fresh variance soon differs from the frozen one
  optimizer.weight_decay = 0.1;
  optimizer.freeze_step = 6;
  optimizer.max_coefficient = 0.7;  // "normal" has 0.6 to 0.9
  run.config.gradient_clipping = 0;
  return run;
}

// The rule in double (engine/optimizer/one_bit_lamb.h, kernels/signs.h).
class LambReference : public test::DistanceReference {
 public:
  LambReference(const DistanceRun& run, const std::vector<float>& weights)
      : DistanceReference(run, weights),
        m_(weights.size()),
        v_(weights.size()),
        frozen_(run.parameters.size()),
        factors_(run.parameters.size(), 1.0) {}

  void step(int64_t step) {
    const OptimizerConfig& o = run_.config.optimizer;
    const std::vector<std::vector<double>> own = gradients(step);
    const bool signs = step >= o.freeze_step;
    if (step == o.freeze_step) fresh_ = v_;
    const double factor = clip(own, signs);
    const std::vector<double> mean = mean_of(own), before = m_;
    for (size_t w = 0; w < mean.size() && !signs; ++w) {
      const double g = mean[w] * factor;
      m_[w] = o.beta1 * m_[w] + (1 - o.beta1) * g;
      v_[w] = o.beta2 * v_[w] + (1 - o.beta2) * g * g;
    }
    if (signs) m_ = average_signs(own_momenta(m_, own, factor), v_);
    int64_t first = 0;
    for (size_t p = 0; p < run_.parameters.size(); ++p) {
      const int64_t end = first + run_.parameters[p].shape.elements();
      const double ratio = signs ? frozen_[p] * next_factor(p, first, end, before) : warm_up_ratio(p, first, end);
      for (int64_t w = first; w < end; ++w) weights_[w] -= o.lr * ratio * update(p, w, decay(p));
      first = end;
    }
  }
  const std::vector<double>& factors() const { return factors_; }

 private:
  double decay(size_t p) const {
    return run_.parameters[p].decay || run_.config.optimizer.decay_all ? run_.config.optimizer.weight_decay : 0;
  }
  double update(size_t, int64_t w, double decay) const {
    return m_[w] / (std::sqrt(v_[w]) + run_.config.optimizer.epsilon) + decay * weights_[w];
  }
  double norm_of_updates(size_t p, int64_t first, int64_t end, double decay) const {
    double sum = 0;
    for (int64_t w = first; w < end; ++w) sum += std::pow(update(p, w, decay), 2);
    return std::sqrt(sum);
  }

  double warm_up_ratio(size_t p, int64_t first, int64_t end) {
    const OptimizerConfig& o = run_.config.optimizer;
    const double weights = std::sqrt(squares({weights_.begin() + first, weights_.begin() + end}));
    const double updates = norm_of_updates(p, first, end, decay(p));
    if (weights == 0 || updates == 0) return 1;
    const double ratio = std::min(std::max(weights / updates, o.min_coefficient), o.max_coefficient);
    if (ratio != 1) frozen_[p] = o.ratio_beta * frozen_[p] + (1 - o.ratio_beta) * ratio;
    return ratio;
  }

  double next_factor(size_t p, int64_t first, int64_t end, const std::vector<double>& before) {
    const OptimizerConfig& o = run_.config.optimizer;
    double largest = 0;
    for (int64_t w = first; w < end; ++w) {
      const double g = (m_[w] - o.beta1 * before[w]) / (1 - o.beta1);
      fresh_[w] = o.beta2 * fresh_[w] + (1 - o.beta2) * g * g;
      largest = std::max(largest, (std::sqrt(v_[w]) + o.epsilon) / (std::sqrt(fresh_[w]) + o.epsilon));
    }
    const double share =
        decay(p) > 0 ? std::min(1.0, norm_of_updates(p, first, end, 0) / norm_of_updates(p, first, end, decay(p))) : 1;
    const double wanted = std::min(std::max(largest * share + 1 - share, o.factor_min), o.factor_max), last = factors_[p];
    factors_[p] = std::min(std::max(wanted, last * (1 - o.factor_threshold)), last * (1 + o.factor_threshold));
    return factors_[p];
  }

  std::vector<double> m_, v_, fresh_;
  std::vector<double> frozen_, factors_;  // [parameter]
};

// A step moves a weight by at most a few times lr. Momenta in float32 differ from those in double by some roundings of numbers
// of size 1, which 1 / sqrt(v) makes larger by up to 100 times: 1e-6 in 24 steps is more than was seen.
constexpr double kLambTolerance = 1e-5;

TEST(OneBitLamb, FollowsTheRuleInDouble) {
  for (const int ranks : {1, 2, 3}) test::expect_as_reference<LambReference>(lamb_run(ranks), kLambTolerance);
}

TEST(OneBitLamb, FollowsTheRuleWithAllBoundsClose) {
  DistanceRun run = lamb_run(2);
  OptimizerConfig& optimizer = run.config.optimizer;
  optimizer.factor_max = 1.3;
  optimizer.factor_min = 1.1;
  optimizer.factor_threshold = 0.05;
  optimizer.ratio_beta = 0.5;
  optimizer.min_coefficient = 0.4;
  optimizer.decay_all = true;
  run.config.gradient_clipping = 3;
  test::expect_as_reference<LambReference>(run, kLambTolerance);
}

// largest x share + (1 - share), within [0.5, 4] and 10% of the last.
TEST(OneBitLamb, BoundsTheFactorAndItsChange) {
  const OptimizerConfig config;
  EXPECT_DOUBLE_EQ(next_ratio_factor(1.05, 1, 1, config), 1.05);
  EXPECT_DOUBLE_EQ(next_ratio_factor(1.2, 0.25, 1, config), 1.05);
  EXPECT_DOUBLE_EQ(next_ratio_factor(7, 1, 1, config), 1.1);
  EXPECT_DOUBLE_EQ(next_ratio_factor(0.1, 1, 1, config), 0.9);
  EXPECT_DOUBLE_EQ(next_ratio_factor(7, 1, 3.9, config), 4);
  EXPECT_DOUBLE_EQ(next_ratio_factor(0, 1, 0.52, config), 0.5);
}

TEST(OneBitLamb, IsLambUntilTheVarianceStays) {
  DistanceRun signs = lamb_run(2), lamb = signs;
  lamb.config.optimizer.type = OptimizerType::Lamb;
  lamb.config.optimizer.bias_correction = false;
  const auto a = test::train(signs), b = test::train(lamb);
  const int64_t freeze = signs.config.optimizer.freeze_step;
  for (int64_t step = 0; step <= freeze; ++step) EXPECT_EQ(a.weights[step], b.weights[step]) << step;
  EXPECT_NE(a.weights[freeze + 1], b.weights[freeze + 1]);
}

// In the warm-up, at its end, right after it, and later.
TEST(OneBitLamb, ContinuesFromACheckpointWithTheSameBits) {
  for (const int ranks : {1, 3}) {
    const DistanceRun run = lamb_run(ranks);
    const auto whole = test::train(run);
    for (const int64_t steps : {3, 6, 7, 15}) {
      const test::TemporaryFolder folder;
      DistanceRun before = run, after = run;
      before.steps = steps, before.save_to = folder.path(), after.load_from = folder.path();
      test::train(before);
      EXPECT_EQ(test::train(after).weights.back(), whole.weights.back()) << ranks << " ranks, " << steps << " steps";
    }
  }
}

TEST(OneBitLamb, ErrorsBelongToTheNumberOfRanksThatHaveThem) {
  const test::TemporaryFolder folder;
  DistanceRun saved = lamb_run(3), loaded = lamb_run(2);
  saved.steps = 8, saved.save_to = folder.path(), loaded.load_from = folder.path();
  test::train(saved);
  EXPECT_ANY_THROW(test::train(loaded));
}

// tests/golden/one_bit_lamb_reference.py runs DeepSpeed's optimizer, whose signs have scales as here.
TEST(OneBitLamb, FollowsDeepSpeed) {
  std::ifstream file(TRIVET_SOURCE_DIR "/tests/golden/one_bit_lamb.json");
  ASSERT_TRUE(file.is_open());
  const auto golden = nlohmann::json::parse(file);
  DistanceRun run = lamb_run(golden.at("ranks"));
  run.parameters = {{.name = "a", .shape = {300}, .init = {Init::Kind::Ones}, .decay = true},
                    {.name = "b", .shape = {5}, .init = {Init::Kind::Zeros}, .decay = false},
                    {.name = "c", .shape = {600}, .init = {Init::Kind::Ones}, .decay = true}};
  run.steps = golden.at("steps");
  OptimizerConfig& optimizer = run.config.optimizer;
  optimizer.lr = golden.at("lr"), optimizer.weight_decay = golden.at("weight_decay");
  optimizer.beta1 = golden.at("betas").at(0), optimizer.beta2 = golden.at("betas").at(1);
  optimizer.freeze_step = golden.at("freeze_step"), optimizer.ratio_beta = golden.at("coeff_beta");
  optimizer.max_coefficient = golden.at("max_coeff"), optimizer.min_coefficient = golden.at("min_coeff");
  const auto outcome = test::train(run);
  int compared = 0;
  for (const auto& [step, weights] : golden.at("weights").items()) {
    const std::vector<double> expected = weights;
    const std::vector<float>& found = outcome.weights.at(std::stoull(step));
    ASSERT_EQ(found.size(), expected.size());
    for (size_t w = 0; w < expected.size(); ++w)
      ASSERT_NEAR(found[w], expected[w], kLambTolerance) << "step " << step << ", weight " << w;
    ++compared;
  }
  EXPECT_EQ(compared, 4);
}

// All other ranks skip the step, too, and neither errors nor averages of ratios change.
TEST(OneBitLamb, ASkippedStepChangesNothing) {
  for (const int64_t skipped : {2, 9}) {
    std::vector<std::vector<float>> ends;
    for (const bool skips : {false, true})
      comm::run_threads(2, [&](comm::World& world) {
        const DistanceRun run = lamb_run(2);
        model::Model model = test::distance_model(run.parameters);
        Plan plan = make_plan(run.config, model, world.size());
        Engine engine(std::move(plan), std::move(model), world);
        for (int64_t step = 0; step < 14; ++step) {
          const test::DistanceBatch batch(engine.plan(), 945, world.rank(), step);
          if (skips && step == skipped) {
            test::DistanceBatch broken(engine.plan(), 945, world.rank(), step);
            if (world.rank() == 1) broken.inputs[0][3] = std::numeric_limits<float>::infinity();
            EXPECT_TRUE(engine.train_batch(broken.views).skipped);
          }
          EXPECT_FALSE(engine.train_batch(batch.views).skipped);
        }
        std::vector<float> weights = test::all_weights(engine, run.parameters);
        if (world.rank() == 0) ends.push_back(std::move(weights));
      });
    EXPECT_EQ(ends[0], ends[1]) << skipped;
  }
}

// A transformer in a few microbatches. `parts`: the ranks of a pipeline; 2 data ranks.
std::vector<uint32_t> transformer_losses(int parts, Recompute recompute, bool bf16) {
  Config config = small_config();
  config.optimizer.type = OptimizerType::OneBitLamb;
  config.optimizer.freeze_step = 8;
  config.optimizer.lr = 1e-2;
  config.optimizer.weight_decay = 0.01;
  config.parallel.pipeline = parts;
  config.recompute = recompute;
  config.bf16.enabled = bf16;
  config.reproducible = Reproducible::Run;
  std::vector<uint32_t> losses;
  std::vector<double> all;
  comm::run_threads(2 * parts, [&](comm::World& world) {
    Engine engine(plan_of(config, 2 * parts), model_of(config), world);
    for (int64_t step = 0; step < 30; ++step) {
      std::vector<int32_t> tokens(32), targets(32);
      for (int32_t t = 0; t < 32; ++t) tokens[t] = t % 5, targets[t] = (t + 1) % 5;
      const std::vector<Microbatch> batch(engine.plan().batch.gradient_accumulation_steps,
                                          {{tokens.data(), DType::Int32, {1, 32}}, {targets.data(), DType::Int32, {1, 32}}, 0});
      const double loss = engine.train_batch(batch).loss;
      if (world.rank() == 0) losses.push_back(std::bit_cast<uint32_t>(static_cast<float>(loss))), all.push_back(loss);
    }
    EXPECT_EQ(engine.measured_memory(), engine.plan().rank(world.rank()).memory);
  });
  EXPECT_LT(all.back(), 0.8 * all.front());
  return losses;
}

TEST(OneBitLamb, HasTheSameBitsOnEveryPipeline) {
  for (const bool bf16 : {false, true}) {
    const auto one = transformer_losses(1, Recompute::None, bf16);
    EXPECT_EQ(transformer_losses(2, Recompute::None, bf16), one);
    EXPECT_EQ(transformer_losses(4, Recompute::Full, bf16), one);
  }
}

TEST(OneBitLamb, SendsSignsOnly) {
  const DistanceRun run = lamb_run(2);
  const Plan signs = make_plan(run.config, test::distance_model(run.parameters), 2);
  Config config = run.config;
  config.optimizer.type = OptimizerType::OneBitAdam;
  const Plan adam = make_plan(config, test::distance_model(run.parameters), 2);
  const auto sent = [](const Plan& plan) {
    std::vector<std::pair<std::string, int64_t>> bytes;
    for (const auto& [line, traffic] : plan.ranks[0].traffic) bytes.emplace_back(line, traffic.bytes_sent);
    return bytes;
  };
  EXPECT_EQ(sent(signs), sent(adam));
}

TEST(OneBitLamb, RefusesWhatItCannotShare) {
  const auto refused = [](auto&& change, const char* message) {
    Config config = small_config();
    config.optimizer.type = OptimizerType::OneBitLamb;
    change(config);
    EXPECT_THAT([&] { plan_of(config, 2); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  refused([](Config& c) { c.zero.stage = 1; }, "optimizer.type: \"OneBitLamb\" is not accepted with zero_optimization.stage 1");
  refused([](Config& c) { c.parallel.tensor = 2; }, "\"OneBitLamb\" is not accepted with parallel.tensor 2");
  refused([](Config& c) { c.reproducible = Reproducible::Layout; }, "\"OneBitLamb\" is not accepted with reproducible");
  refused([](Config& c) { c.optimizer.min_coefficient = 11; }, "optimizer.params.min_coeff: is larger than max_coeff");
  refused([](Config& c) { c.optimizer.factor_min = 5; }, "optimizer.params.factor_min: 5 is larger than factor_max 4");
  DistanceRun run = lamb_run(2);
  run.parameters[1].update.kind = ParameterUpdate::Kind::RunningAverage;
  EXPECT_THAT([&] { make_plan(run.config, test::distance_model(run.parameters), 2); },
              ThrowsMessage<ConfigError>(HasSubstr("optimizer.type \"OneBitLamb\" is not accepted, because distance.zeros is a "
                                                   "running average")));
}

}  // namespace
}  // namespace trivet
