// Models that are lists of the caller's layers, on samples that are not text: what the plan asks of them, and that they train.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/world.h"
#include "core/error.h"
#include "data/made_up_source.h"
#include "engine/engine.h"
#include "model/count_flops.h"
#include "model/linear.h"
#include "model/lm_head.h"
#include "model/mlp.h"

namespace trivet {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kPixels = 12, kHidden = 16, kClasses = 5;

std::unique_ptr<Layer> head() {
  return std::make_unique<model::LmHead>(model::LmHead::Options{.vocabulary = kClasses, .hidden = kHidden},
                                         model::make_norm(model::NormKind::LayerNorm, kHidden, 1e-5, true));
}

// Small images of float32 pixels, and the class of each.
model::Model classifier(int hidden_layers) {
  model::Model model;
  model.sample = {.input_dtype = DType::Float32, .input = {kPixels}, .targets = {1}, .classes = kClasses};
  const auto add = [&](const std::string& name, std::unique_ptr<Layer> layer) {
    model.names.push_back(name);
    model.layers.push_back(std::move(layer));
  };
  add("input", std::make_unique<model::Linear>(model::Linear::Options{.in = kPixels, .out = kHidden}));
  for (int i = 0; i < hidden_layers; ++i)
    add("hidden." + std::to_string(i),
        std::make_unique<model::Mlp>(model::Mlp::Options{.hidden = kHidden, .feed_forward = 2 * kHidden}));
  add("classes", head());
  return model;
}

Config config_of(int64_t pipeline) {
  Config config;
  config.source = "own";
  config.batch = {.train_batch_size = 8, .micro_batch_size = 2};
  config.parallel.pipeline = pipeline;
  config.reproducible = Reproducible::Layout;
  return config;
}

void expect_refused(const model::Model& model, const std::string& message) {
  EXPECT_THAT([&] { make_plan(config_of(1), model, 1); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
}

// The section "model" has 12 layers and 12 heads by default, which say nothing about this model.
TEST(OwnModel, IsNotCheckedAgainstTheKeysOfTheConfigsModel) {
  EXPECT_EQ(make_plan(config_of(16), classifier(30), 16).stages.stages(), 16);
  EXPECT_THAT([] { make_plan(config_of(8), classifier(2), 8); },
              ThrowsMessage<ConfigError>(HasSubstr("8 stages need at least as many blocks, but the model has 4")));
}

TEST(OwnModel, EndsWithTheOneLayerThatComputesTheLoss) {
  model::Model model = classifier(1);
  model.layers.pop_back(), model.names.pop_back();
  expect_refused(model, "own: layer hidden.0 is the last, but computes no loss");
  model = classifier(1);
  model.layers[1] = head();
  expect_refused(model, "own: layer hidden.0 computes the loss, but is not the last");
}

TEST(OwnModel, NamesItsLayersAndSaysWhatASampleIs) {
  model::Model model = classifier(1);
  model.names.pop_back();
  expect_refused(model, "own: the model has 3 layers and 2 names");
  model = classifier(1);
  model.sample = {};
  expect_refused(model, "own: the model does not say what a sample is");
}

class OfExperts final : public model::Linear {
 public:
  OfExperts() : Linear({.in = kHidden, .out = kHidden}), parameters_(Linear::parameters().begin(), Linear::parameters().end()) {
    parameters_[0].sharing = Sharing::Expert;
  }
  std::span<const ParameterSpec> parameters() const override { return parameters_; }

 private:
  std::vector<ParameterSpec> parameters_;
};

TEST(OwnModel, IsNotChangedByKeysOfTheEnginesModels) {
  Config config = config_of(1);
  config.model.token_drop.enabled = true;
  const auto plan = [&] { make_plan(config, classifier(1), 1); };
  EXPECT_THAT(plan,
              ThrowsMessage<ConfigError>(HasSubstr("random_ltd.enabled: true has no effect on a list of your own layers; wrap "
                                                   "them in model::DroppedTokens")));
}

// A layer says how many matrices the experts of a parameter are; without that they are one.
TEST(OwnModel, HasExpertsThatRanksCanShare) {
  Config config = config_of(1);
  config.parallel.expert = 2;
  model::Model model = classifier(1);
  model.layers[1] = std::make_unique<OfExperts>();
  EXPECT_THAT([&] { make_plan(config, model, 2); },
              ThrowsMessage<ConfigError>(
                  HasSubstr("parallel.expert: the 1 matrices of hidden.0.weight cannot be divided among 2 ranks")));
}

// The two products of the input layer (forward, weights) and the three of each other matrix. Products compute GELU, too: 8
// operations for an element in forward and 14 in backward.
TEST(OwnModel, CountsTheFlopsOfItsProducts) {
  const double input = 2.0 * kPixels * kHidden, hidden = 2.0 * 2 * kHidden * 2 * kHidden, classes = 2.0 * kHidden * kClasses;
  const double products = 2 * input + 3 * (2 * hidden + classes), gelu = 2 * 2 * kHidden * (8 + 14);
  EXPECT_DOUBLE_EQ(model::flops_per_sample(classifier(2)), products + gelu);
  EXPECT_DOUBLE_EQ(make_plan(config_of(1), classifier(2), 1).model_flops_per_step, 8 * (products + gelu));
}

std::vector<double> losses_of(const Config& config, int ranks) {
  std::vector<double> losses;
  comm::run_threads(ranks, [&](comm::World& world) {
    model::Model model = classifier(2);
    Plan plan = make_plan(config, model, world.size());
    Engine engine(std::move(plan), std::move(model), world);
    const auto memory = data::made_up_step(engine.model().sample, engine.plan().batch_layout(world.rank()));
    std::vector<Microbatch> microbatches;
    for (const data::HostMicrobatch& one : memory) microbatches.push_back(one.view);
    for (int step = 0; step < 20; ++step) {
      const StepResult result = engine.train_batch(microbatches);
      if (world.rank() == 0) losses.push_back(result.loss);
    }
    const double evaluated = engine.evaluate(microbatches).loss;
    if (world.rank() == 0) {
      EXPECT_LT(evaluated, losses.front());
    }
  });
  return losses;
}

class InEveryPrecision : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(OwnModel, InEveryPrecision, testing::Values(DType::Float32, DType::BFloat16, DType::Float16),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

// Samples of numbers are converted to the model's dtype; every layout learns from them with the same bits.
TEST_P(InEveryPrecision, LearnsFromSamplesOfNumbers) {
  Config one = config_of(1);
  one.bf16.enabled = GetParam() == DType::BFloat16;
  one.fp16.enabled = GetParam() == DType::Float16;
  one.fp16.initial_scale_power = 8;
  one.optimizer.lr = 0.03;
  Config four = one;
  four.parallel.pipeline = 2;
  four.zero.stage = 3;
  const std::vector<double> losses = losses_of(one, 1);
  EXPECT_LT(losses.back(), 0.5 * losses.front());
  EXPECT_EQ(losses, losses_of(four, 4));
}

}  // namespace
}  // namespace trivet
