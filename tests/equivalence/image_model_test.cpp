// A model of images, with every kind of layer, on pipelines and with every optimizer; and the running statistics of batch norm,
// which are parameters: they are sharded, saved and moved like the others, but follow averages instead of gradients.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "engine/make_plan.h"
#include "tests/equivalence/tiny_run.h"
#include "tests/support/temporary_folder.h"
#include "trainer/predictions.h"

namespace trivet::test {
namespace {

Config image_config(Reproducible reproducible) {
  Config config = tiny_config(model::Type::Sequential);
  config.reproducible = reproducible;
  return config;
}

TEST(ImageModel, Learns) {
  const Trace trace = run({.steps = 40, .config = image_config(Reproducible::Run)});
  EXPECT_LT(loss_of(trace, 39), loss_of(trace, 0) - 0.25f);
  EXPECT_GT(trace.correct, 12);  // of 36, with 5 classes
}

// An evaluation of 12 of its 36 samples, with and without a reader of logits.
TEST(ImageModel, ReadingLogitsChangesNoBitAndPredictsWhatIsCounted) {
  std::array<StepResult, 2> results;
  std::vector<Prediction> kept;
  const auto evaluate = [&](Engine& engine, int, int64_t step) {
    if (step != 39) return;
    const SampleSpec& sample = engine.model().sample;
    std::vector<float> images;
    std::vector<int32_t> targets;
    for (int64_t i = 0; i < 12; ++i) {
      const std::vector<float> image = tiny_image(7, i, sample.input.elements());
      images.insert(images.end(), image.begin(), image.end());
      targets.push_back(static_cast<int32_t>(i % sample.classes));
    }
    const int64_t micro = engine.plan().batch.micro_batch_size;
    const auto make = [&](int64_t i) {
      return Microbatch{{images.data() + i * micro * sample.input.elements(), DType::Float32, sample.inputs_of(micro)},
                        {targets.data() + i * micro, DType::Int32, sample.targets_of(micro)},
                        i * micro};
    };
    Predictions predictions(sample, 12);
    results = {engine.evaluate(12 / micro, make), engine.evaluate(12 / micro, make, &predictions)};
    kept = predictions.kept();
  };
  const Trace read = run({.steps = 40, .before_step = evaluate, .config = image_config(Reproducible::Run)});
  EXPECT_EQ(difference(read, run({.steps = 40, .config = image_config(Reproducible::Run)})), "");
  EXPECT_EQ(results[0].loss, results[1].loss);
  ASSERT_EQ(kept.size(), 12u);
  EXPECT_EQ(std::ranges::count(kept, true, &Prediction::right), results[0].correct);
  EXPECT_GT(results[0].correct, 0);
}

TEST(ImageModel, InStagesGivesTheBitsOfOneRankInLayoutMode) {
  const Trace one = run({.steps = 3, .config = image_config(Reproducible::Layout)});
  for (const ScheduleKind schedule :
       {ScheduleKind::OneForwardOneBackward, ScheduleKind::Interleaved, ScheduleKind::ZeroBubbleH1})
    for (const auto& [pipeline, data, stage] : {std::array{2, 1, 0}, {3, 1, 2}, {2, 2, 3}}) {
      Config config = image_config(Reproducible::Layout);
      config.parallel.pipeline = pipeline;
      config.pipeline.schedule = schedule;
      config.zero.stage = stage;
      config.recompute = stage == 2 ? Recompute::Full : Recompute::None;
      EXPECT_EQ(difference(one, run({.ranks = pipeline * data, .steps = 3, .config = config})), "")
          << name_of(schedule) << " pipeline " << pipeline << " data " << data << " stage " << stage;
    }
}

// A vision transformer, and a reader of texts of at most one character.
TEST(ModelOfSequences, InStagesGivesTheBitsOfOneRankInLayoutMode) {
  for (const std::vector<std::string>& network :
       {std::vector<std::string>{"conv 4 padding 1", "patches 12 size 2", "positions", "block 2 dropout 0.1",
                                 "block 3 feed_forward 20", "layer_norm", "mean", "dense 5"},
        {"conv 4 padding 1", "relu", "columns", "dense 12", "positions", "block 2", "dense 6", "ctc 1"}}) {
    Config config = image_config(Reproducible::Layout);
    config.model.network = network;
    const Trace one = run({.steps = 3, .config = config});
    EXPECT_NE(one.loss_bits[0], one.loss_bits[2]);
    for (const ScheduleKind schedule :
         {ScheduleKind::OneForwardOneBackward, ScheduleKind::Interleaved, ScheduleKind::ZeroBubbleH1})
      for (const Recompute recompute : {Recompute::None, Recompute::Selective, Recompute::Full}) {
        config.parallel.pipeline = 2;
        config.pipeline.schedule = schedule;
        config.recompute = recompute;
        config.zero.stage = recompute == Recompute::Full ? 3 : 0;
        const int ranks = recompute == Recompute::Full ? 4 : 2;
        EXPECT_EQ(difference(one, run({.ranks = ranks, .threads = 2, .steps = 3, .config = config})), "")
            << network.back() << " " << name_of(schedule) << " on " << ranks << " ranks";
      }
  }
}

TEST(ImageModel, HasTheSameBitsOnEveryLayoutWithEveryOptimizerThatMovesRunningAverages) {
  for (const OptimizerType type : all_values<OptimizerType>()) {
    if (type == OptimizerType::Lamb) continue;  // see RunningStatistics.AreRefusedWhereTheyWouldBeWrong
    Config config = image_config(Reproducible::Layout);
    config.optimizer.type = type;
    config.optimizer.momentum = 0.9;
    const Trace one = run({.steps = 3, .config = config});
    config.zero.stage = 3;
    EXPECT_EQ(difference(one, run({.ranks = 3, .steps = 3, .config = config})), "") << name_of(type);
    EXPECT_NE(one.weights.at("2.batch_norm.running_var")[0], 1) << name_of(type);
  }
}

// A batch norm on the images themselves, whose statistics can be computed here.
Config norm_first(Reproducible reproducible) {
  Config config = image_config(reproducible);
  config.model.input = {2, 3, 3};
  config.model.network = {"batch_norm momentum 0.25", "flatten", "dense 5"};
  config.gradient_clipping = 1e-3;  // gradients are clipped and decay; averages are not
  config.optimizer.decay_all = true;
  return config;
}

struct ChannelStatistics {
  double mean = 0, variance = 1;
};

// Moves statistics by a step: towards the average over microbatches of their mean and variance of a sample.
void move(ChannelStatistics& of_channel, const Config& config, int64_t step, int64_t channel) {
  constexpr int64_t kPixels = 9, kElements = 18;
  const int64_t micro = config.batch.micro_batch_size, microbatches = config.batch.train_batch_size / micro;
  double mean_of_all = 0, variance_of_all = 0;
  for (int64_t m = 0; m < microbatches; ++m) {
    std::vector<double> values;
    for (int64_t sample = m * micro; sample < (m + 1) * micro; ++sample) {
      const std::vector<float> image = tiny_image(step, sample, kElements);
      values.insert(values.end(), image.begin() + channel * kPixels, image.begin() + (channel + 1) * kPixels);
    }
    double mean = 0, variance = 0;
    for (const double value : values) mean += value / static_cast<double>(values.size());
    for (const double value : values) variance += std::pow(value - mean, 2) / static_cast<double>(values.size() - 1);
    mean_of_all += mean / static_cast<double>(microbatches);
    variance_of_all += variance / static_cast<double>(microbatches);
  }
  of_channel.mean = 0.75 * of_channel.mean + 0.25 * mean_of_all;
  of_channel.variance = 0.75 * of_channel.variance + 0.25 * variance_of_all;
}

TEST(RunningStatistics, FollowTheAverageOverTheMicrobatchesOfAStep) {
  for (const bool bf16 : {false, true})
    for (const auto& [ranks, stage] : {std::pair{1, 0}, {2, 1}, {4, 3}}) {
      Config config = norm_first(Reproducible::Run);
      config.bf16.enabled = bf16;
      config.zero.stage = stage;
      const Trace trace = run({.ranks = ranks, .steps = 3, .config = config});
      for (int64_t channel = 0; channel < 2; ++channel) {
        ChannelStatistics expected;
        for (int64_t step = 0; step < 3; ++step) move(expected, config, step, channel);
        const double tolerance = bf16 ? 0x1p-8 : 1e-5;  // images are rounded to bf16
        EXPECT_NEAR(trace.weights.at("1.batch_norm.running_mean")[channel], expected.mean, tolerance) << ranks << " ranks";
        EXPECT_NEAR(trace.weights.at("1.batch_norm.running_var")[channel], expected.variance, tolerance) << ranks << " ranks";
      }
    }
}

// Plain gradient descent with the learning rate 1 moves every weight by its gradient.
TEST(RunningStatistics, AreNoPartOfTheGradientsNorm) {
  Config config = norm_first(Reproducible::Run);
  config.optimizer = {.type = OptimizerType::Sgd, .lr = 0, .weight_decay = 0};
  config.gradient_clipping = 0;
  const Trace first = run({.steps = 1, .config = config});
  config.optimizer.lr = 1;
  const Trace moved = run({.steps = 1, .config = config});
  double squares = 0;
  for (const auto& [name, weights] : moved.weights)
    for (size_t i = 0; name.find("running") == std::string::npos && i < weights.size(); ++i)
      squares += std::pow(static_cast<double>(weights[i]) - static_cast<double>(first.weights.at(name)[i]), 2);
  // Weights are rounded to float32 after they have moved.
  EXPECT_NEAR(moved.grad_norms.at(0), std::sqrt(squares), 1e-5 * std::sqrt(squares));
}

TEST(RunningStatistics, ChangeNoTrainingButOnlyEvaluations) {
  Config config = norm_first(Reproducible::Run);
  config.optimizer.lr = 0;
  config.optimizer.weight_decay = 0;
  const Trace slow = run({.steps = 3, .config = config});
  config.model.network[0] = "batch_norm momentum 1";
  const Trace fast = run({.steps = 3, .config = config});
  EXPECT_EQ(slow.grad_norms, fast.grad_norms);
  EXPECT_EQ(slow.loss_bits, fast.loss_bits);
  EXPECT_NE(slow.evaluation, fast.evaluation);  // which uses them
}

TEST(RunningStatistics, AreInCheckpointsForEveryLayout) {
  const TemporaryFolder folder;
  Config config = image_config(Reproducible::Layout);
  const Trace whole = run({.steps = 4, .config = config});
  config.zero.stage = 3;
  run({.ranks = 2, .steps = 2, .save_to = folder.at("checkpoints"), .config = config});
  config.zero.stage = 1;
  const Trace resumed = run({.ranks = 3, .steps = 4, .load_from = folder.at("checkpoints"), .config = config});
  EXPECT_EQ(whole.weights, resumed.weights);
  EXPECT_EQ(whole.evaluation, resumed.evaluation);
  EXPECT_EQ(whole.correct, resumed.correct);
}

std::string refusal(const Config& config) {
  try {
    make_plan(config, model::build(config.model), 1);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ImageModel, NeedsMicrobatchesThatBatchNormCanNormalize) {
  Config config = image_config(Reproducible::Run);
  config.batch.micro_batch_size = 1;
  EXPECT_EQ(
      refusal(config),
      "tiny: train_micro_batch_size_per_gpu: 1 is not accepted: layer 12.batch_norm needs at least 2 values to normalize, but "
      "has 1 of [1, 8]; use larger microbatches");
}

// The bytes of such an output would overflow 64 bits.
TEST(ImageModel, NeedsMicrobatchesWhoseOutputsCanBeCounted) {
  Config config = image_config(Reproducible::Run);
  config.model.input = {1, 1, 1};
  config.model.network = {"conv 131072 kernel 1 padding 62", "flatten"};
  config.batch = {.micro_batch_size = int64_t{1} << 31};
  EXPECT_EQ(refusal(config),
            "tiny: train_micro_batch_size_per_gpu: 2147483648 samples of 2048000000 outputs of layer 1.conv are more than "
            "70368744177664; use a smaller one and gradient_accumulation_steps");
}

// An output of one number for each sample does not say how much there is inside of a layer.
TEST(ImageModel, NeedsMicrobatchesWhoseInnerTensorsCanBeCounted) {
  Config config = image_config(Reproducible::Run);
  config.model.input = {1, 1, 1};
  config.model.network = {"columns", "block 1 feed_forward 262144", "mean"};
  config.batch = {.micro_batch_size = int64_t{1} << 31};
  const std::string problem = refusal(config);
  EXPECT_THAT(problem, testing::StartsWith("tiny: train_micro_batch_size_per_gpu: 2147483648 samples of "));
  EXPECT_THAT(problem, testing::EndsWith(" numbers inside of layer 2.block are more than 70368744177664; use a smaller one and "
                                         "gradient_accumulation_steps"));
  config.batch = {.micro_batch_size = 8};
  EXPECT_EQ(refusal(config), "");
}

TEST(RunningStatistics, AreRefusedWhereTheyWouldBeWrong) {
  Config lamb = image_config(Reproducible::Run), fp16 = lamb, gradients = lamb, weights = lamb;
  const std::string who = " is not accepted, because 2.batch_norm.running_mean is a running average: ";
  lamb.optimizer.type = OptimizerType::Lamb;
  EXPECT_EQ(refusal(lamb),
            "tiny: optimizer.type \"Lamb\"" + who + "LAMB does not move it; use another optimizer or group_norm");
  fp16.fp16.enabled = true;
  EXPECT_EQ(refusal(fp16),
            "tiny: fp16.enabled true" + who +
                "what a step adds to it may not fit into float16; use bf16, data_types.grad_accum_dtype \"fp32\" or "
                "group_norm");
  fp16.grad_accum_dtype = DType::Float32;
  EXPECT_EQ(refusal(fp16), "");
  gradients.zero.zero_quantized_gradients = true;
  EXPECT_EQ(refusal(gradients), "tiny: zero_optimization.zero_quantized_gradients true" + who +
                                    "it would be rounded together with gradients of another size; use false or group_norm");
  weights.zero.zero_quantized_weights = true;
  EXPECT_EQ(refusal(weights), "tiny: zero_optimization.zero_quantized_weights true" + who +
                                  "it would be rounded together with weights of another size; use false or group_norm");
  for (Config* config : {&lamb, &gradients, &weights}) {
    for (std::string& layer : config->model.network)
      if (layer == "batch_norm") layer = "group_norm 2";
    EXPECT_EQ(refusal(*config), "");
  }
}

}  // namespace
}  // namespace trivet::test
