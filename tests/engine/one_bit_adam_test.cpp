// 1-bit Adam: whole runs against the rule in double, with gradients that are known exactly; restarts; and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "comm/world.h"
#include "core/error.h"
#include "core/random.h"
#include "engine/engine.h"
#include "kernels/kernels.h"
#include "tests/engine/small_plan.h"
#include "tests/support/temporary_folder.h"

namespace trivet {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kWeights = 300;  // one block and a part of the next
constexpr int64_t kNeverUsed = 17;

// The loss of a sample is half the squared distance of the weights from it, except of one weight, which has no gradient.
class Distance final : public Layer {
 public:
  Distance() : parameters_{{.name = "weight", .shape = {kWeights}, .init = {Init::Kind::Normal, 0.5}, .decay = true}} {}
  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  Shape output_shape(const Shape&) const override { return {1}; }
  LayerRole role() const override { return LayerRole::Loss; }
  void forward(Context&, Weights, ConstTensorView, TensorView, Saved&) const override {}
  void backward_input(Context&, Weights, ConstTensorView, TensorView, Saved&) const override {}
  void backward_weight(Context&, Gradients, const Saved&) const override {}
  void forward_backward(Context& c, Weights weights, Gradients gradients, ConstTensorView x, TensorView,
                        Saved&) const override {
    if (c.kernels.device() == Device::Meta) return;
    const int64_t samples = x.shape[0];
    auto* const gradient = gradients[0].view.as<float>();
    const auto scale = static_cast<float>(c.gradient_scale.value());
    double loss = 0;
    for (int64_t w = 0; w < kWeights; ++w) {
      float sum = gradients[0].accumulate ? gradient[w] : 0.0f;
      for (int64_t s = 0; s < samples && w != kNeverUsed; ++s) {
        const float difference = weights[0].as<float>()[w] - x.as<float>()[s * kWeights + w];
        loss += 0.5 * static_cast<double>(difference) * static_cast<double>(difference);
        sum += difference * scale;
      }
      gradient[w] = sum;
    }
    if (c.loss.absent()) return;
    c.loss.as<double>()[0] += loss;
    c.loss.as<double>()[1] += static_cast<double>(samples);
  }

 private:
  std::vector<ParameterSpec> parameters_;
};

model::Model distance_model() {
  model::Model model;
  model.sample = {.input_dtype = DType::Float32, .input = {kWeights}, .targets = {1}, .classes = 1};
  model.names = {"distance"};
  model.layers.push_back(std::make_unique<Distance>());
  return model;
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

double sample_value(int64_t step, int64_t sample, int64_t w) {
  return static_cast<double>(
      unit_float(philox(5, static_cast<uint64_t>(step), static_cast<uint64_t>(sample * kWeights + w))[0]));
}

struct Batch {
  std::vector<std::vector<float>> inputs;
  std::vector<int32_t> targets;
  std::vector<Microbatch> views;

  Batch(const Plan& plan, int rank, int64_t step) {
    const int64_t micro = plan.batch.micro_batch_size, ranks = plan.mesh.size(Axis::Data);
    targets.assign(micro, 0);
    for (int64_t m = 0; m < plan.batch.gradient_accumulation_steps; ++m) {
      const int64_t first = (m * ranks + rank) * micro;
      std::vector<float>& input = inputs.emplace_back();
      for (int64_t s = first; s < first + micro; ++s)
        for (int64_t w = 0; w < kWeights; ++w) input.push_back(static_cast<float>(sample_value(step, s, w)));
    }
    for (size_t m = 0; m < inputs.size(); ++m)
      views.push_back({{inputs[m].data(), DType::Float32, {micro, kWeights}},
                       {targets.data(), DType::Int32, {micro, 1}},
                       (static_cast<int64_t>(m) * ranks + rank) * micro});
  }
};

struct Outcome {
  std::vector<std::vector<float>> weights;  // before the first step, and after each
  std::vector<double> norms;
};

struct Signs {
  int ranks = 1;
  int64_t steps = 12;
  std::string load_from = {}, save_to = {};
  Config config = signs_config();
};

Outcome train(const Signs& run) {
  Outcome outcome;
  comm::run_threads(run.ranks, [&](comm::World& world) {
    model::Model model = distance_model();
    Plan plan = make_plan(run.config, model, world.size());
    Engine engine(std::move(plan), std::move(model), world);
    if (!run.load_from.empty()) {
      EXPECT_TRUE(engine.load(run.load_from));
    }
    const auto keep = [&] {
      std::vector<float> weights = engine.weight("distance.weight");
      if (world.rank() == 0) outcome.weights.push_back(std::move(weights));
    };
    keep();
    while (engine.progress().steps < run.steps) {
      const Batch batch(engine.plan(), world.rank(), engine.progress().steps);
      const StepResult result = engine.train_batch(batch.views);
      if (world.rank() == 0) outcome.norms.push_back(result.grad_norm);
      keep();
    }
    if (!run.save_to.empty()) engine.save(run.save_to);
  });
  return outcome;
}

// The rule in double (engine/optimizer/one_bit_adam.h, kernels/signs.h). Ranks are numbered as the batch layout does.
class Reference {
 public:
  Reference(const Signs& run, const std::vector<float>& weights)
      : run_(run), weights_(weights.begin(), weights.end()), errors_(run.ranks, std::vector<double>(kWeights)) {}

  void step(int64_t step) {
    const OptimizerConfig& o = run_.config.optimizer;
    const std::vector<std::vector<double>> own = gradients(step);
    const bool signs = step >= o.freeze_step;
    std::vector<double> mean(kWeights);
    for (const auto& gradient : own)
      for (int64_t w = 0; w < kWeights; ++w) mean[w] += gradient[w] / run_.ranks;
    double sum = 0;
    for (const auto& gradient : own) sum += squares(gradient);
    norm_ = std::sqrt(signs ? sum / run_.ranks : squares(mean));
    const double clipping = run_.config.gradient_clipping;
    const double clip = clipping > 0 ? std::min(1.0, clipping / (norm_ + 1e-6)) : 1;
    if (signs) {
      average(own, clip);
    } else {
      for (int64_t w = 0; w < kWeights; ++w) {
        const double g = mean[w] * clip;
        m_[w] = o.beta1 * m_[w] + (1 - o.beta1) * g;
        v_[w] = o.beta2 * v_[w] + (1 - o.beta2) * g * g;
      }
    }
    for (int64_t w = 0; w < kWeights; ++w)
      weights_[w] -= o.lr * (m_[w] / (std::sqrt(v_[w]) + o.epsilon) + o.weight_decay * weights_[w]);
  }
  const std::vector<double>& weights() const { return weights_; }
  double norm() const { return norm_; }

 private:
  static double squares(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return sum;
  }

  // Of the mean loss over the samples of each rank.
  std::vector<std::vector<double>> gradients(int64_t step) const {
    const int64_t batch = run_.config.batch.train_batch_size, micro = run_.config.batch.micro_batch_size;
    std::vector<std::vector<double>> all(run_.ranks, std::vector<double>(kWeights));
    for (int64_t s = 0; s < batch; ++s)
      for (int64_t w = 0; w < kWeights; ++w)
        if (w != kNeverUsed)
          all[s / micro % run_.ranks][w] += (weights_[w] - sample_value(step, s, w)) * run_.ranks / static_cast<double>(batch);
    return all;
  }

  std::vector<double> take_signs(std::vector<double>& values) const {
    constexpr int64_t kBlock = kernels::kQuantizedBlock;
    std::vector<double> taken(kWeights);
    for (int64_t first = 0; first < kWeights; first += kBlock) {
      const int64_t end = std::min(first + kBlock, kWeights);
      double sum = 0, counted = 0;
      for (int64_t w = first; w < end; ++w)
        if (v_[w] > 0) sum += std::abs(values[w]), ++counted;
      for (int64_t w = first; w < end; ++w) {
        taken[w] = v_[w] > 0 ? std::copysign(sum / counted, values[w]) : 0;
        values[w] = v_[w] > 0 ? values[w] - taken[w] : 0;
      }
    }
    return taken;
  }

  void average(const std::vector<std::vector<double>>& own, double clip) {
    const double beta1 = run_.config.optimizer.beta1;
    for (int rank = 0; rank < run_.ranks; ++rank) {
      for (int64_t w = 0; w < kWeights; ++w) errors_[rank][w] += beta1 * m_[w] + (1 - beta1) * own[rank][w] * clip;
      const std::vector<double> taken = take_signs(errors_[rank]);
      for (int64_t w = 0; w < kWeights; ++w) server_[w] += taken[w] / run_.ranks;
    }
    m_ = take_signs(server_);
  }

  const Signs& run_;
  std::vector<double> weights_, m_ = std::vector<double>(kWeights), v_ = m_, server_ = m_;
  std::vector<std::vector<double>> errors_;
  double norm_ = 0;
};

// A step moves a weight by lr x m / sqrt(v), a few times lr here. Momenta in float32 differ from those in double by some
// roundings of numbers below 1, which 1 / sqrt(v) makes larger by up to 100 times: 1e-6 in 12 steps is more than was seen.
void expect_as_reference(const Signs& run) {
  const Outcome outcome = train(run);
  Reference reference(run, outcome.weights.front());
  for (int64_t step = 0; step < run.steps; ++step) {
    reference.step(step);
    EXPECT_NEAR(outcome.norms[step], reference.norm(), 1e-5 * reference.norm()) << step;
    for (int64_t w = 0; w < kWeights; ++w)
      ASSERT_NEAR(outcome.weights[step + 1][w], reference.weights()[w], 1e-5) << "step " << step << ", weight " << w;
  }
}

TEST(OneBitAdam, FollowsTheRuleInDouble) {
  for (const int ranks : {1, 2, 3}) expect_as_reference({.ranks = ranks});
}

TEST(OneBitAdam, ClipsByTheRootMeanSquareOfTheRanksNorms) {
  Signs run{.ranks = 2};
  run.config.gradient_clipping = 3;
  expect_as_reference(run);
}

TEST(OneBitAdam, IsAdamUntilTheVarianceStays) {
  Signs whole{.ranks = 2}, later{.ranks = 2};
  later.config.optimizer.freeze_step = 8;
  const Outcome a = train(whole), b = train(later);
  for (int64_t step = 0; step <= whole.config.optimizer.freeze_step; ++step)
    EXPECT_EQ(a.weights[step], b.weights[step]) << step;
  EXPECT_NE(a.weights[5], b.weights[5]);
}

TEST(OneBitAdam, ContinuesWithTheErrorsOfACheckpoint) {
  for (const int ranks : {1, 3}) {
    const test::TemporaryFolder folder;
    const Outcome whole = train({.ranks = ranks});
    train({.ranks = ranks, .steps = 7, .save_to = folder.path()});
    const Outcome rest = train({.ranks = ranks, .load_from = folder.path()});
    EXPECT_EQ(rest.weights.back(), whole.weights.back()) << ranks << " ranks";
  }
}

TEST(OneBitAdam, ErrorsBelongToTheNumberOfRanksThatHaveThem) {
  const test::TemporaryFolder folder;
  train({.ranks = 3, .steps = 7, .save_to = folder.path()});
  EXPECT_ANY_THROW(train({.ranks = 2, .load_from = folder.path()}));
  EXPECT_ANY_THROW(train({.ranks = 1, .load_from = folder.path()}));
}

// All other ranks skip the step, too, and what has not been sent stays where it is.
TEST(OneBitAdam, ASkippedStepChangesNothing) {
  std::vector<std::vector<float>> weights;
  comm::run_threads(2, [&](comm::World& world) {
    model::Model model = distance_model();
    Plan plan = make_plan(signs_config(), model, world.size());
    Engine engine(std::move(plan), std::move(model), world);
    for (int64_t step = 0; step < 8; ++step) {
      Batch batch(engine.plan(), world.rank(), step);
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
    const Plan signs = make_plan(config, distance_model(), ranks);
    config.optimizer.type = OptimizerType::AdamW;
    const Plan adam = make_plan(config, distance_model(), ranks);
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
