// 0/1 Adam: which update does what; whole runs against the rule in double, with gradients that are known exactly, and against
// DeepSpeed; layouts; restarts in every phase; what is sent; and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "comm/world.h"
#include "core/error.h"
#include "engine/config/optimizer_states.h"
#include "engine/engine.h"
#include "engine/lr_schedule.h"
#include "engine/rehearsal.h"
#include "tests/engine/distance_run.h"
#include "tests/engine/small_plan.h"
#include "tests/support/temporary_folder.h"

namespace trivet {
namespace {

using test::DistanceRun;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Refreshes: 1, 2, 4, 6, 8, 12. Synchronisations: 14 to 17, then even numbers to 21, then multiples of 4.
DistanceRun zero_one_run(int ranks) {
  DistanceRun run{.parameters = {{.name = "ones", .shape = {300}, .init = {Init::Kind::Ones}, .decay = true},
                                 {.name = "zeros", .shape = {5}, .init = {Init::Kind::Zeros}, .decay = false},
                                 {.name = "normal", .shape = {600}, .init = {Init::Kind::Normal, 0.5}, .decay = true}},
                  .ranks = ranks,
                  .steps = 34};
  run.config.source = "signs";
  run.config.batch = {.train_batch_size = 12, .micro_batch_size = 2};
  OptimizerConfig& optimizer = run.config.optimizer;
  optimizer.type = OptimizerType::ZeroOneAdam;
  optimizer.lr = 1e-2;
  optimizer.weight_decay = 0.1;
  optimizer.var_freeze_step = 13;
  optimizer.var_update_scaler = 2;
  optimizer.local_step_scaler = 4;
  optimizer.local_step_clipper = 4;
  run.config.scheduler.type = SchedulerType::Linear;  // so that local updates have different learning rates
  run.config.scheduler.total_num_steps = 60;
  run.config.gradient_clipping = 0;
  return run;
}

// ---- which update does what

// The kinds of the first updates, with DeepSpeed's counters.
std::vector<UpdateKind> kinds_by_counting(const OptimizerConfig& config, int64_t updates) {
  std::vector<UpdateKind> kinds;
  int64_t interval = 1, refreshes = 0, local_interval = 1, local_updates = 0;
  for (int64_t update = 1; update <= updates; ++update) {
    if (update <= config.var_freeze_step) {
      const bool refreshes_now = update % interval == 0;
      kinds.push_back(refreshes_now ? UpdateKind::SumsGradients : UpdateKind::SendsSigns);
      if (refreshes_now && ++refreshes == config.var_update_scaler) refreshes = 0, interval *= 2;
      continue;
    }
    kinds.push_back(update % local_interval == 0 ? UpdateKind::EndsLocalUpdates : UpdateKind::Local);
    if (++local_updates < config.local_step_scaler) continue;
    local_updates = 0;
    local_interval = std::min(config.local_step_clipper, 2 * local_interval);
  }
  return kinds;
}

TEST(ZeroOneAdam, KindsOfUpdatesAreThoseOfDeepSpeedsCounters) {
  for (const int64_t freeze : {1, 2, 3, 6, 7, 64, 1000})
    for (const int64_t refreshes : {1, 2, 3, 16, 5000})
      for (const int64_t scaler : {1, 2, 5, 40})
        for (const int64_t clipper : {1, 2, 3, 10, 16}) {
          OptimizerConfig config{.type = OptimizerType::ZeroOneAdam};
          config.var_freeze_step = freeze, config.var_update_scaler = refreshes;
          config.local_step_scaler = scaler, config.local_step_clipper = clipper;
          const std::vector<UpdateKind> kinds = kinds_by_counting(config, 1200);
          std::set<UpdateKind> found, named;
          for (int64_t update = 1; update <= 1200; ++update) {
            ASSERT_EQ(kind_of_update(config, update), kinds[update - 1])
                << "update " << update << " of " << freeze << ", " << refreshes << ", " << scaler << ", " << clipper;
            found.insert(kinds[update - 1]);
          }
          for (const int64_t update : updates_of_all_kinds(config)) named.insert(kind_of_update(config, update));
          EXPECT_EQ(named, found);
          EXPECT_EQ(kind_of_update(config, updates_of_all_kinds(config).back()), UpdateKind::EndsLocalUpdates);
        }
}

// With DeepSpeed's defaults.
TEST(ZeroOneAdam, RefreshesTheVarianceLessAndLess) {
  const OptimizerConfig config{.type = OptimizerType::ZeroOneAdam};
  std::vector<int64_t> refreshes;
  for (int64_t update = 1; update <= 240; ++update)
    if (!has_own_gradients(config, update)) refreshes.push_back(update);
  EXPECT_EQ(refreshes, (std::vector<int64_t>{1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,  12,  13,  14,  15,  16,
                                             18,  20,  22,  24,  26,  28,  30,  32,  34,  36,  38,  40,  42,  44,  46,  48,
                                             52,  56,  60,  64,  68,  72,  76,  80,  84,  88,  92,  96,  100, 104, 108, 112,
                                             120, 128, 136, 144, 152, 160, 168, 176, 184, 192, 200, 208, 216, 224, 232, 240}));
}

// ---- the rule

// The rule in double (engine/optimizer/zero_one_adam.h, kernels/signs.h).
class ZeroOneReference : public test::DistanceReference {
 public:
  ZeroOneReference(const DistanceRun& run, const std::vector<float>& weights)
      : DistanceReference(run, weights),
        kinds_(kinds_by_counting(run.config.optimizer, run.steps)),
        m_(run.ranks, std::vector<double>(weights.size())),
        sums_(m_),
        v_(weights.size()),
        of_layers_(run.ranks, weights_) {
    for (const ParameterSpec& parameter : run.parameters)
      decay_.insert(decay_.end(), parameter.shape.elements(),
                    parameter.decay || run.config.optimizer.decay_all ? run.config.optimizer.weight_decay : 0);
  }

  void step(int64_t step) {
    const UpdateKind kind = kinds_[step];
    const double lr = lr_at(run_.config, run_.config.batch.train_batch_size, step);
    std::vector<std::vector<double>> own = own_gradients(step);
    const double factor = clip(own, kind != UpdateKind::SumsGradients);
    for (std::vector<double>& gradient : own)
      for (double& g : gradient) g *= factor;
    if (kind == UpdateKind::SumsGradients) {
      const std::vector<double> mean = mean_of(own);
      for (size_t w = 0; w < mean.size(); ++w) v_[w] = beta2() * v_[w] + (1 - beta2()) * mean[w] * mean[w];
      return update_together(mean, lr);
    }
    if (kind == UpdateKind::SendsSigns) return update_together(average_signs(own, v_), lr);
    update_locally(own, lr);
    if (step == run_.config.optimizer.var_freeze_step) forget_errors();
    if (kind == UpdateKind::EndsLocalUpdates) synchronise();
  }
  // As the layers of a rank see them.
  const std::vector<double>& weights_of(int rank) const { return of_layers_[rank]; }

 private:
  double beta1() const { return run_.config.optimizer.beta1; }
  double beta2() const { return run_.config.optimizer.beta2; }
  double denominator(size_t w) const { return std::sqrt(v_[w]) + run_.config.optimizer.epsilon; }

  // Each rank has weights of its own.
  std::vector<std::vector<double>> own_gradients(int64_t step) {
    const std::vector<double> base = weights_;
    std::vector<std::vector<double>> own;
    for (int rank = 0; rank < run_.ranks; ++rank) {
      weights_ = of_layers_[rank];
      own.push_back(gradients(step)[rank]);
    }
    weights_ = base;
    return own;
  }

  void update_together(const std::vector<double>& gradient, double lr) {
    for (std::vector<double>& m : m_)
      for (size_t w = 0; w < m.size(); ++w) m[w] = beta1() * m[w] + (1 - beta1()) * gradient[w];
    for (size_t w = 0; w < weights_.size(); ++w) weights_[w] -= lr * (m_[0][w] / denominator(w) + decay_[w] * weights_[w]);
    of_layers_.assign(run_.ranks, weights_);
  }

  void update_locally(const std::vector<std::vector<double>>& own, double lr) {
    lr_sum_ += lr;
    for (size_t w = 0; w < weights_.size(); ++w) {
      weights_[w] -= lr * decay_[w] * weights_[w];
      for (int rank = 0; rank < run_.ranks; ++rank) {
        m_[rank][w] = v_[w] > 0 ? beta1() * m_[rank][w] + (1 - beta1()) * own[rank][w] : 0;
        sums_[rank][w] += lr * m_[rank][w];
        of_layers_[rank][w] = weights_[w] - sums_[rank][w] / denominator(w);
      }
    }
  }

  void synchronise() {
    const std::vector<double> sum = average_signs(sums_, v_);
    for (size_t w = 0; w < sum.size(); ++w) {
      weights_[w] -= sum[w] / denominator(w);
      for (std::vector<double>& m : m_) m[w] = sum[w] / lr_sum_;
    }
    sums_.assign(run_.ranks, std::vector<double>(weights_.size()));
    of_layers_.assign(run_.ranks, weights_);
    lr_sum_ = 0;
  }

  std::vector<UpdateKind> kinds_;
  std::vector<std::vector<double>> m_, sums_;  // [rank]
  std::vector<double> v_, decay_;
  std::vector<std::vector<double>> of_layers_;  // [rank]
  double lr_sum_ = 0;
};

// A step moves a weight by a few times lr. Momenta in float32 differ from those in double by some roundings of numbers of size
// 1, which 1 / sqrt(v) makes larger by up to 100 times, in 34 steps one after the other.
constexpr double kZeroOneTolerance = 1e-5;

// Compares the weights that all ranks share, those of each rank's layers, and norms, after every step.
void expect_the_rule(const DistanceRun& run) {
  const auto outcome = test::train(run);
  ZeroOneReference reference(run, outcome.weights.front());
  for (int64_t step = 0; step < run.steps; ++step) {
    reference.step(step);
    ASSERT_NEAR(outcome.norms[step], reference.norm(), 1e-5 * reference.norm()) << step;
    for (size_t w = 0; w < reference.weights().size(); ++w) {
      ASSERT_NEAR(outcome.weights[step + 1][w], reference.weights()[w], kZeroOneTolerance) << "step " << step << ", " << w;
      for (int rank = 0; rank < run.ranks; ++rank)
        ASSERT_NEAR(outcome.of_layers[rank][step + 1][w], reference.weights_of(rank)[w], kZeroOneTolerance)
            << "step " << step << ", weight " << w << " of rank " << rank;
    }
  }
}

TEST(ZeroOneAdam, FollowsTheRuleInDouble) {
  for (const int ranks : {1, 2, 3}) expect_the_rule(zero_one_run(ranks));
}

TEST(ZeroOneAdam, FollowsTheRuleWithClippingAndOtherIntervals) {
  DistanceRun run = zero_one_run(2);
  run.config.gradient_clipping = 3;
  run.config.optimizer.decay_all = true;
  run.config.optimizer.var_freeze_step = 9;
  run.config.optimizer.var_update_scaler = 1;
  run.config.optimizer.local_step_scaler = 3;
  run.config.optimizer.local_step_clipper = 3;
  run.config.optimizer.beta1 = 0.8;
  expect_the_rule(run);
}

TEST(ZeroOneAdam, RanksHaveTheSameBitsAfterEverySynchronisation) {
  const DistanceRun run = zero_one_run(3);
  const auto outcome = test::train(run);
  const std::vector<UpdateKind> kinds = kinds_by_counting(run.config.optimizer, run.steps);
  for (int64_t update = 1; update <= run.steps; ++update) {
    const bool differ = kinds[update - 1] == UpdateKind::Local;
    for (int rank = 0; rank < run.ranks; ++rank)
      EXPECT_EQ(outcome.of_layers[rank][update] == outcome.weights[update], !differ)
          << "rank " << rank << ", update " << update;
    EXPECT_EQ(outcome.of_layers[1][update] == outcome.of_layers[0][update], !differ) << update;
  }
}

TEST(ZeroOneAdam, IsAdamWhileTheVarianceIsRefreshedInEveryUpdate) {
  DistanceRun zero_one = zero_one_run(2), adam = zero_one;
  zero_one.config.optimizer.var_update_scaler = 10;
  adam.config.optimizer.type = OptimizerType::AdamW;
  adam.config.optimizer.bias_correction = false;
  const auto a = test::train(zero_one), b = test::train(adam);
  for (int64_t step = 0; step <= 10; ++step) EXPECT_EQ(a.weights[step], b.weights[step]) << step;
  EXPECT_NE(a.weights[11], b.weights[11]);
}

// ---- restarts

// After a refresh, after signs, at the end of the first phase, after a synchronisation, and in all places between two.
TEST(ZeroOneAdam, ContinuesFromACheckpointWithTheSameBits) {
  for (const int ranks : {1, 3}) {
    const DistanceRun run = zero_one_run(ranks);
    const auto whole = test::train(run);
    for (const int64_t steps : {4, 5, 13, 14, 19, 24, 25, 26, 27, 31}) {
      const test::TemporaryFolder folder;
      DistanceRun before = run, after = run;
      before.steps = steps, before.save_to = folder.path(), after.load_from = folder.path();
      test::train(before);
      const auto rest = test::train(after);
      EXPECT_EQ(rest.weights.front(), whole.weights[steps]);
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(rest.of_layers[rank].front(), whole.of_layers[rank][steps]) << "rank " << rank << ", " << steps << " steps";
        EXPECT_EQ(rest.of_layers[rank].back(), whole.of_layers[rank].back()) << "rank " << rank << ", " << steps << " steps";
      }
    }
  }
}

TEST(ZeroOneAdam, MomentaBelongToTheNumberOfRanksThatHaveThem) {
  const test::TemporaryFolder folder;
  DistanceRun saved = zero_one_run(3), loaded = zero_one_run(2);
  saved.steps = 23, saved.save_to = folder.path(), loaded.load_from = folder.path();
  test::train(saved);
  EXPECT_THAT(
      [&] { test::train(loaded); },
      ThrowsMessage<Error>(HasSubstr("was saved with 3 data ranks, and this run has 2: what ZeroOneAdam keeps for each data "
                                     "rank has no place on others; use as many ranks along the data axis")));
}

TEST(ZeroOneAdam, ARunWithLocalUpdatesGoesOnWithThem) {
  const auto goes_on = [](int64_t saved_after, int64_t freeze_step) {
    const test::TemporaryFolder folder;
    DistanceRun saved = zero_one_run(2), loaded = saved;
    saved.steps = saved_after, saved.save_to = folder.path();
    loaded.steps = saved_after + 1, loaded.load_from = folder.path();
    loaded.config.optimizer.var_freeze_step = freeze_step;
    test::train(saved);
    test::train(loaded);
  };
  goes_on(10, 10);
  goes_on(10, 20);
  EXPECT_THAT([&] { goes_on(15, 20); }, ThrowsMessage<Error>(HasSubstr("optimizer.params.var_freeze_step: 20 does not match")));
  EXPECT_THAT([&] { goes_on(10, 9); },
              ThrowsMessage<Error>(HasSubstr("which was saved with 13 after 10 updates; set it to 13")));
}

// ---- DeepSpeed

// tests/golden/zero_one_adam_reference.py runs DeepSpeed's optimizer, whose signs have scales as here. With decay it differs
// after var_freeze_step, so one of its two runs ends there and the other has none.
TEST(ZeroOneAdam, FollowsDeepSpeed) {
  std::ifstream file(TRIVET_SOURCE_DIR "/tests/golden/zero_one_adam.json");
  ASSERT_TRUE(file.is_open());
  const auto golden = nlohmann::json::parse(file);
  DistanceRun run = zero_one_run(golden.at("ranks"));
  run.parameters = {{.name = "a", .shape = {300}, .init = {Init::Kind::Ones}, .decay = true},
                    {.name = "b", .shape = {5}, .init = {Init::Kind::Zeros}, .decay = false},
                    {.name = "c", .shape = {600}, .init = {Init::Kind::Ones}, .decay = true}};
  run.config.scheduler.type = SchedulerType::Constant;
  OptimizerConfig& optimizer = run.config.optimizer;
  optimizer.lr = golden.at("lr");
  optimizer.beta1 = golden.at("betas").at(0), optimizer.beta2 = golden.at("betas").at(1);
  optimizer.var_freeze_step = golden.at("var_freeze_step"), optimizer.var_update_scaler = golden.at("var_update_scaler");
  optimizer.local_step_scaler = golden.at("local_step_scaler");
  optimizer.local_step_clipper = golden.at("local_step_clipper");
  int compared = 0;
  for (const auto& of_run : golden.at("runs")) {
    optimizer.weight_decay = of_run.at("weight_decay");
    run.steps = of_run.at("steps");
    const auto outcome = test::train(run);
    for (const auto& [step, ranks] : of_run.at("weights").items())
      for (const auto& [rank, weights] : ranks.items()) {
        const std::vector<double> expected = weights;
        const std::vector<float>& found = outcome.of_layers.at(std::stoull(rank)).at(std::stoull(step));
        ASSERT_EQ(found.size(), expected.size());
        for (size_t w = 0; w < expected.size(); ++w)
          ASSERT_NEAR(found[w], expected[w], kZeroOneTolerance) << "step " << step << ", weight " << w << " of rank " << rank;
        ++compared;
      }
  }
  EXPECT_EQ(compared, 8);
}

// ---- steps that are unlike others

// All other ranks skip the step, too, and neither errors nor sums change: of a refresh, of signs, of local updates.
TEST(ZeroOneAdam, ASkippedStepChangesNothing) {
  const DistanceRun run = zero_one_run(2);
  const auto end_of = [&](int64_t skipped) {
    std::vector<std::vector<float>> ends(2);
    comm::run_threads(2, [&](comm::World& world) {
      model::Model model = test::distance_model(run.parameters);
      Plan plan = make_plan(run.config, model, world.size());
      Engine engine(std::move(plan), std::move(model), world);
      for (int64_t step = 0; step < 26; ++step) {
        const test::DistanceBatch batch(engine.plan(), 905, world.rank(), step);
        if (step == skipped) {
          test::DistanceBatch broken(engine.plan(), 905, world.rank(), step);
          if (world.rank() == 1) broken.inputs[0][3] = std::numeric_limits<float>::infinity();
          EXPECT_TRUE(engine.train_batch(broken.views).skipped);
        }
        EXPECT_FALSE(engine.train_batch(batch.views).skipped);
      }
      ends[world.rank()] = test::weights_of_layers(engine, run.parameters);
    });
    return ends;
  };
  const auto expected = end_of(-1);
  for (const int64_t skipped : {3, 4, 13, 22, 23}) EXPECT_EQ(end_of(skipped), expected) << skipped;
}

// Nothing moves while the learning rate is 0, not even what errors have not said.
TEST(ZeroOneAdam, ALearningRateOfZeroMovesNothing) {
  DistanceRun run = zero_one_run(2);
  run.config.scheduler.total_num_steps = 24;  // 0 from then on
  const auto outcome = test::train(run);
  for (int64_t update = 25; update <= run.steps; ++update) EXPECT_EQ(outcome.weights[update], outcome.weights[24]) << update;
  for (const auto& layers : outcome.of_layers)
    for (const float weight : layers.back()) EXPECT_TRUE(std::isfinite(weight));
}

// A weight whose first gradient comes when the variance stays is left out: the divisor of its update would be epsilon.
TEST(ZeroOneAdam, LeavesOutWhatHadNoGradientBefore) {
  constexpr int64_t kLate = 301;  // of "zeros", which does not decay
  const DistanceRun run = zero_one_run(2);
  comm::run_threads(2, [&](comm::World& world) {
    model::Model model = test::distance_model(run.parameters);
    Plan plan = make_plan(run.config, model, world.size());
    Engine engine(std::move(plan), std::move(model), world);
    for (int64_t step = 0; step < run.steps; ++step) {
      test::DistanceBatch batch(engine.plan(), 905, world.rank(), step);
      for (std::vector<float>& input : batch.inputs)
        for (int64_t s = 0; step < 13 && s < 2; ++s) input[s * 905 + kLate] = 0;
      EXPECT_FALSE(engine.train_batch(batch.views).skipped);
      const std::vector<float> weights = test::weights_of_layers(engine, run.parameters);
      EXPECT_EQ(weights[kLate], 0) << step;
      EXPECT_NE(weights[kLate + 1], 0) << step;
    }
  });
}

// ---- transformers

// `parts`: the ranks of a pipeline; 2 data ranks with different sequences.
std::vector<uint32_t> zero_one_losses(int parts, Recompute recompute, bool bf16) {
  Config config = small_config();
  config.optimizer.type = OptimizerType::ZeroOneAdam;
  config.optimizer.var_freeze_step = 12;
  config.optimizer.var_update_scaler = 3;
  config.optimizer.local_step_scaler = 4;
  config.optimizer.local_step_clipper = 4;
  config.optimizer.lr = 3e-3;
  config.optimizer.weight_decay = 0.01;
  config.parallel.pipeline = parts;
  config.recompute = recompute;
  config.bf16.enabled = bf16;
  config.reproducible = Reproducible::Run;
  config.audit.weights_every = 1;
  std::vector<uint32_t> losses;
  std::vector<double> all;
  comm::run_threads(2 * parts, [&](comm::World& world) {
    Engine engine(plan_of(config, 2 * parts), model_of(config), world);
    const int data = engine.plan().mesh.coordinate_of(world.rank(), Axis::Data);
    for (int64_t step = 0; step < 36; ++step) {
      std::vector<int32_t> tokens(32), targets(32);
      for (int32_t t = 0; t < 32; ++t) tokens[t] = (t + data) % 5, targets[t] = (t + data + 1) % 5;
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

// Embedding and head share a table, of which the last part has a copy: it follows the weights of its own data rank.
TEST(ZeroOneAdam, HasTheSameBitsOnEveryPipeline) {
  for (const bool bf16 : {false, true}) {
    const auto one = zero_one_losses(1, Recompute::None, bf16);
    EXPECT_EQ(zero_one_losses(2, Recompute::None, bf16), one);
    EXPECT_EQ(zero_one_losses(4, Recompute::Full, bf16), one);
  }
}

// ---- float16

// The losses of 2 data ranks with different sequences.
std::vector<double> losses_in_float16(OptimizerType type, double loss_scale) {
  Config config = small_config();
  config.optimizer = {.type = type, .lr = 3e-3};
  config.optimizer.freeze_step = config.optimizer.var_freeze_step = 4;
  config.optimizer.local_step_scaler = 2;
  config.fp16 = {.enabled = true, .loss_scale = loss_scale};
  config.reproducible = Reproducible::Run;
  std::vector<double> losses;
  comm::run_threads(2, [&](comm::World& world) {
    Engine engine(plan_of(config, 2), model_of(config), world);
    for (int64_t step = 0; step < 6; ++step) {
      std::vector<int32_t> tokens(32), targets(32);
      for (int32_t t = 0; t < 32; ++t) tokens[t] = (t + world.rank()) % 5, targets[t] = (t + world.rank() + 1) % 5;
      const std::vector<Microbatch> batch(engine.plan().batch.gradient_accumulation_steps,
                                          {{tokens.data(), DType::Int32, {1, 32}}, {targets.data(), DType::Int32, {1, 32}}, 0});
      const double loss = engine.train_batch(batch).loss;
      if (world.rank() == 0) losses.push_back(loss);
    }
  });
  return losses;
}

// The loss of step 5 shows the first update that sends signs. Of gradients that are too small for float16, a larger scale loses
// fewer, which signs of small numbers make visible: the losses agree to a hundredth. If the scale stayed in a rank's own
// gradients, they would be 32 and 256 times as large.
TEST(OptimizersThatSendSigns, TakeTheLossScaleOutOfTheirGradients) {
  for (const OptimizerType type : {OptimizerType::OneBitAdam, OptimizerType::OneBitLamb, OptimizerType::ZeroOneAdam}) {
    const auto small = losses_in_float16(type, 32), large = losses_in_float16(type, 256);
    ASSERT_EQ(small.size(), large.size());
    for (size_t i = 0; i < small.size(); ++i)
      EXPECT_NEAR(small[i], large[i], 0.01 * large[i]) << name_of(type) << ", step " << i;
    EXPECT_LT(large.back(), 0.95 * large.front()) << name_of(type);
  }
}

// ---- what is sent

// By a rank in a step that makes this update.
int64_t bytes_of_update(const DistanceRun& run, int64_t update) {
  const model::Model model = test::distance_model(run.parameters);
  const Plan plan = make_plan(run.config, model, run.ranks);
  std::vector<const comm::ProcessGroup*> groups;
  const auto place = [&](Group group) {
    groups.push_back(group.get());
    return group;
  };
  Rehearsal rehearsal(plan, plan.rank(0), model, {.place = place});
  rehearsal.train_step({.update = update});
  int64_t bytes = 0;
  for (const comm::ProcessGroup* group : groups) bytes += group->traffic().bytes_sent;
  return bytes;
}

// Gradients are 4 bytes an element, twice (there and back); signs 36 bytes for 256, twice. Every step has sums of losses and
// norms, too.
TEST(ZeroOneAdam, SendsLessInEveryPhase) {
  for (const int ranks : {2, 4}) {
    DistanceRun run = zero_one_run(ranks);
    run.config.batch.train_batch_size = 16;
    run.parameters = {{.name = "weight", .shape = {300}, .init = {Init::Kind::Ones}, .decay = true}};
    const int64_t shard = 256;  // of 300 elements, in whole blocks
    const int64_t nothing = bytes_of_update(run, 23), signs = 2 * (ranks - 1) * shard / 256 * 36;
    EXPECT_EQ(bytes_of_update(run, 1) - nothing, 2 * (ranks - 1) * shard * 4);
    EXPECT_EQ(bytes_of_update(run, 3) - nothing, signs);
    EXPECT_EQ(bytes_of_update(run, 14) - nothing, signs);
    EXPECT_EQ(bytes_of_update(run, 24) - nothing, signs);
    int64_t planned = 0;
    const Plan plan = make_plan(run.config, test::distance_model(run.parameters), ranks);
    for (const auto& [line, traffic] : plan.ranks[0].traffic) planned += traffic.bytes_sent;
    EXPECT_EQ(planned, signs);  // the lines of a plan are without those sums
  }
}

TEST(ZeroOneAdam, RefusesWhatItCannotShare) {
  const auto refused = [](auto&& change, const char* message) {
    Config config = small_config();
    config.optimizer.type = OptimizerType::ZeroOneAdam;
    change(config);
    EXPECT_THAT([&] { plan_of(config, 2); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  refused([](Config& c) { c.zero.stage = 1; },
          "optimizer.type: \"ZeroOneAdam\" is not accepted with zero_optimization.stage 1");
  refused([](Config& c) { c.parallel.tensor = 2; }, "\"ZeroOneAdam\" is not accepted with parallel.tensor 2");
  refused([](Config& c) { c.reproducible = Reproducible::Layout; }, "\"ZeroOneAdam\" is not accepted with reproducible");
  DistanceRun run = zero_one_run(2);
  run.parameters[1].update.kind = ParameterUpdate::Kind::RunningAverage;
  EXPECT_THAT(
      [&] { make_plan(run.config, test::distance_model(run.parameters), 2); },
      ThrowsMessage<ConfigError>(HasSubstr("optimizer.type \"ZeroOneAdam\" is not accepted, because distance.zeros is a "
                                           "running average")));
}

}  // namespace
}  // namespace trivet
