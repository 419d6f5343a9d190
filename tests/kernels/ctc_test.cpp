// The CTC loss: compared with the sum over all paths, with PyTorch's ctc_loss (tests/golden/ctc_reference.py) and with
// differences in float64.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/kernels/every_device.h"

namespace trivet::kernels::ctc_test {
namespace {

using Targets = std::vector<std::vector<int32_t>>;
constexpr uint8_t kPoison = 0xA5;
constexpr size_t kGuardBytes = 64;  // after the scratch memory
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Logits and targets of a batch, and what the kernel makes of them.
struct CtcBatch {
  HostTensor logits, gradient;
  Values<int32_t> padded;  // [B, places]
  int64_t samples, places;
  double scale = 1;
  Values<double> loss = Values<double>(2), correct = Values<double>(1);
  Values<uint8_t> scratch;

  // A target without characters becomes {0, -1 ...}, which counts.
  CtcBatch(const HostTensor& x, const Targets& targets, int64_t room)
      : logits(x),
        gradient(HostTensor::poisoned(x.view().dtype, x.view().shape)),
        padded(targets.size() * room, -1),
        samples(static_cast<int64_t>(targets.size())),
        places(room) {
    for (size_t b = 0; b < targets.size(); ++b) {
      std::ranges::copy(targets[b], padded.begin() + static_cast<int64_t>(b) * room);
      if (targets[b].empty()) padded[b * room] = 0;
    }
  }
  Ctc arguments() {
    const ConstTensorView targets = view_of(padded, {samples, places});
    const int64_t bytes = CtcScratch(logits.view(), targets).bytes;
    scratch.assign(bytes + kGuardBytes, kPoison);
    return {.logits = logits.view(),
            .targets = targets,
            .dlogits = gradient.view(),
            .gradient_scale = scale,
            .loss = view_of(loss),
            .correct = view_of(correct),
            .scratch = {scratch.data(), DType::UInt8, {bytes}}};
  }
  void run(Kernels& kernels) {
    kernels.ctc(arguments());
    EXPECT_EQ(std::count(scratch.end() - kGuardBytes, scratch.end(), kPoison), static_cast<int64_t>(kGuardBytes));
  }
  double loss_of_run(Kernels& kernels) {
    loss[0] = loss[1] = correct[0] = 0;
    run(kernels);
    return loss[0];
  }
};

CtcBatch random_batch(DType dtype, int64_t steps, int64_t classes, const Targets& targets, uint64_t seed = 1) {
  HostTensor logits = HostTensor::random(dtype, {static_cast<int64_t>(targets.size()), steps, classes}, seed);
  for (int64_t e = 0; e < logits.elements(); ++e) logits.set(e, 3 * logits.at(e));
  return CtcBatch(logits, targets, 5);
}

std::vector<int32_t> spelled_by(const std::vector<int32_t>& path) {
  std::vector<int32_t> characters;
  for (size_t t = 0; t < path.size(); ++t)
    if (path[t] != 0 && (t == 0 || path[t] != path[t - 1])) characters.push_back(path[t]);
  return characters;
}

// -log of the sum of the probabilities of all paths that spell the target, of which there are at most classes^steps.
double loss_of_all_paths(const HostTensor& logits, int64_t sample, const std::vector<int32_t>& target) {
  const int64_t steps = logits.view().shape[1], classes = logits.view().shape[2];
  const auto logit = [&](int64_t t, int64_t k) { return logits.at((sample * steps + t) * classes + k); };
  double probability = 0;
  const auto count = static_cast<int64_t>(std::pow(classes, steps));
  for (int64_t number = 0; number < count; ++number) {
    std::vector<int32_t> path;
    double of_path = 1;
    for (int64_t t = 0, rest = number; t < steps; ++t, rest /= classes) {
      path.push_back(static_cast<int32_t>(rest % classes));
      double sum = 0;
      for (int64_t k = 0; k < classes; ++k) sum += std::exp(logit(t, k));
      of_path *= std::exp(logit(t, path.back())) / sum;
    }
    if (spelled_by(path) == target) probability += of_path;
  }
  return -std::log(probability);
}

const Targets kTargets{{1, 2}, {1, 1}, {}, {3}, {2, 1, 2}, {3, 3, 3}, {1, 2, 3, 1, 2}};

TEST_P(KernelsOnEveryDevice, CtcLossIsThatOfAllPathsThatSpellTheTarget) {
  for (const int64_t steps : {1, 2, 5}) {
    CtcBatch batch = random_batch(DType::Float64, steps, 4, kTargets);
    double expected = 0;
    for (size_t b = 0; b < kTargets.size(); ++b)
      expected += loss_of_all_paths(batch.logits, static_cast<int64_t>(b), kTargets[b]);
    if (steps < 5)
      EXPECT_EQ(batch.loss_of_run(kernels()), kInfinity);
    else
      EXPECT_NEAR(batch.loss_of_run(kernels()), expected, 1e-12 * expected);
    EXPECT_EQ(batch.loss[1], 7);
  }
}

TEST_P(KernelsOnEveryDevice, CtcGradientMatchesDifferences) {
  CtcBatch batch = random_batch(DType::Float64, 6, 4, kTargets, 2);
  batch.scale = 0.25;
  batch.run(kernels());
  const HostTensor gradient = batch.gradient;
  constexpr double kStep = 1e-4;
  for (int64_t e = 0; e < gradient.elements(); ++e) {
    const double value = batch.logits.at(e);
    const auto at = [&](double offset) {
      batch.logits.set(e, value + offset);
      return batch.loss_of_run(kernels());
    };
    const double slope = (at(-2 * kStep) - 8 * at(-kStep) + 8 * at(kStep) - at(2 * kStep)) / (12 * kStep);
    batch.logits.set(e, value);
    ASSERT_NEAR(gradient.at(e), 0.25 * slope, 1e-10) << e;
  }
}

// Errors of logarithms up to 100 in float32, of which a probability's relative error is made.
TEST_P(KernelsOnEveryDevice, CtcLossesAndGradientsArePyTorchs) {
  std::ifstream file(TRIVET_SOURCE_DIR "/tests/golden/ctc.jsonl");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases)
    for (const DType dtype : {DType::Float64, DType::Float32}) {
      const auto golden = nlohmann::json::parse(line);
      const Targets targets = golden.at("targets");
      const std::vector<double> values = golden.at("logits"), gradient = golden.at("gradient"), losses = golden.at("losses");
      HostTensor logits(dtype, {static_cast<int64_t>(targets.size()), golden.at("steps"), golden.at("classes")});
      for (int64_t e = 0; e < logits.elements(); ++e) logits.set(e, values[e]);
      CtcBatch batch(logits, targets, 10);
      double expected = 0;
      for (const double loss : losses) expected += loss;
      const double tolerance = dtype == DType::Float64 ? 1e-12 : 1e-5;
      EXPECT_NEAR(batch.loss_of_run(kernels()), expected, tolerance * expected);
      EXPECT_EQ(batch.loss[1], static_cast<double>(targets.size()));
      for (int64_t e = 0; e < logits.elements(); ++e) ASSERT_NEAR(batch.gradient.at(e), gradient[e], 2 * tolerance) << line;
    }
  EXPECT_EQ(cases, 4);
}

// Logarithms are as large as the number of steps.
TEST_P(KernelsOnEveryDevice, CtcBitsDoNotDependOnThreadsAndAreNearTheCpus) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t steps : {1, 3, 20, 150}) {
      const auto out = [&](Kernels& kernels) {
        CtcBatch batch = random_batch(dtype, steps, 7, kTargets);
        batch.run(kernels);
        HostTensor loss(DType::Float64, {2}), correct(DType::Float64, {1});
        for (int64_t e = 0; e < 2; ++e) loss.set(e, batch.loss[e]);
        correct.set(0, batch.correct[0]);
        return std::vector{batch.gradient, loss, correct};
      };
      const auto here = same_bits_every_way(out), of_cpu = out(*make_cpu_kernels(1));
      const double near = 0x1p12 * sum_unit(dtype);
      for (int64_t e = 0; e < here[0].elements(); ++e)
        ASSERT_NEAR(here[0].at(e), of_cpu[0].at(e), near + 3 * half_unit(dtype) * (1 + std::abs(of_cpu[0].at(e))));
      if (steps > 5) {
        EXPECT_NEAR(here[1].at(0), of_cpu[1].at(0), near * of_cpu[1].at(0));
      }
      EXPECT_EQ(here[1].at(1), of_cpu[1].at(1));
      EXPECT_EQ(here[2], of_cpu[2]);
    }
}

TEST_P(KernelsOnEveryDevice, CtcSumsAreAddedToWhatIsThere) {
  CtcBatch batch = random_batch(DType::Float32, 6, 4, {{1}});
  const double loss = batch.loss_of_run(kernels());
  batch.run(kernels());
  EXPECT_EQ(batch.loss[0], 2 * loss);
  EXPECT_EQ(batch.loss[1], 2);
}

TEST_P(KernelsOnEveryDevice, CtcTheGradientMayOverwriteTheLogits) {
  CtcBatch apart = random_batch(DType::Float32, 8, 4, kTargets), together = apart;
  apart.run(kernels());
  Ctc arguments = together.arguments();
  arguments.dlogits = together.logits.view();
  kernels().ctc(arguments);
  EXPECT_TRUE(together.logits == apart.gradient);
}

TEST_P(KernelsOnEveryDevice, CtcATargetWithoutNumbersDoesNotCount) {
  CtcBatch all = random_batch(DType::Float64, 6, 4, {{1, 2}, {2}}), one = all;
  one.padded[5] = -1;  // the only character of the second sample
  all.run(kernels());
  one.run(kernels());
  EXPECT_EQ(one.loss[1], 1);
  EXPECT_LT(one.loss[0], all.loss[0]);
  for (int64_t e = 0; e < 24; ++e) EXPECT_EQ(one.gradient.at(e), all.gradient.at(e));
  for (int64_t e = 24; e < 48; ++e) EXPECT_EQ(one.gradient.at(e), 0);
}

// It needs a step for each character, and one between equal ones.
TEST_P(KernelsOnEveryDevice, CtcATargetThatDoesNotFitHasAnInfiniteLossAndNoGradient) {
  for (const auto& [target, least] :
       std::vector<std::pair<std::vector<int32_t>, int64_t>>{{{1, 2, 3}, 3}, {{1, 1}, 3}, {{1, 1, 1, 2}, 6}}) {
    CtcBatch fits = random_batch(DType::Float32, least, 4, {target});
    EXPECT_TRUE(std::isfinite(fits.loss_of_run(kernels())));
    CtcBatch short_of_one = random_batch(DType::Float32, least - 1, 4, {target});
    EXPECT_EQ(short_of_one.loss_of_run(kernels()), kInfinity);
    EXPECT_EQ(short_of_one.loss[1], 1);
    for (int64_t e = 0; e < short_of_one.gradient.elements(); ++e) EXPECT_EQ(short_of_one.gradient.at(e), 0);
  }
}

TEST_P(KernelsOnEveryDevice, CtcLargeLogitsStayFinite) {
  CtcBatch batch = random_batch(DType::Float32, 10, 4, {{1, 2, 3}});
  for (int64_t e = 0; e < batch.logits.elements(); ++e) batch.logits.set(e, 100 * batch.logits.at(e));
  EXPECT_TRUE(std::isfinite(batch.loss_of_run(kernels())));
  for (int64_t e = 0; e < batch.gradient.elements(); ++e) EXPECT_TRUE(std::isfinite(batch.gradient.at(e)));
}

// The number of targets that a path spells, if each step prefers the path's class.
double spelled(Kernels& kernels, const std::vector<int32_t>& path, const Targets& targets) {
  HostTensor logits =
      HostTensor::filled(DType::Float32, {static_cast<int64_t>(targets.size()), static_cast<int64_t>(path.size()), 4}, 0);
  for (size_t b = 0; b < targets.size(); ++b)
    for (size_t t = 0; t < path.size(); ++t) logits.set(static_cast<int64_t>((b * path.size() + t) * 4) + path[t], 1);
  CtcBatch batch(logits, targets, 5);
  batch.run(kernels);
  return batch.correct[0];
}

TEST_P(KernelsOnEveryDevice, CtcCountsTargetsThatTheMostProbableClassesSpell) {
  EXPECT_EQ(spelled(kernels(), {0, 1, 1, 0, 1, 2}, {{1, 1, 2}}), 1);
  EXPECT_EQ(spelled(kernels(), {0, 1, 1, 0, 1, 2}, {{1, 2}, {1, 1}, {1, 1, 2, 2}, {}, {1, 1, 2}}), 1);
  EXPECT_EQ(spelled(kernels(), {0, 0, 0}, {{}, {1}}), 1);
  EXPECT_EQ(spelled(kernels(), {3, 3, 3}, {{3}, {3, 3}, {}}), 1);
}

// The CPU sees the targets and refuses them.
TEST_P(KernelsOnEveryDevice, CtcTargetsThatAreNoClassMakeNaN) {
  CtcBatch batch = random_batch(DType::Float32, 6, 4, {{1}, {2, 4}});
  if (on_cpu()) {
    try {
      batch.run(kernels());
      FAIL();
    } catch (const std::out_of_range& error) {
      EXPECT_STREQ(error.what(), "ctc: target 4 of sample 1 must be below the number of classes 4");
    }
    return;
  }
  GetParam()->every_way([&](Kernels& kernels) {
    EXPECT_TRUE(std::isnan(batch.loss_of_run(kernels)));
    EXPECT_EQ(batch.loss[1], 2);
    EXPECT_FALSE(std::isnan(batch.correct[0]));
    for (int64_t e = 0; e < 48; ++e) EXPECT_EQ(std::isnan(batch.gradient.at(e)), e >= 24) << e;
  });
}

TEST_P(KernelsOnEveryDevice, CtcRefusesShapesThatDoNotFit) {
  CtcBatch batch = random_batch(DType::Float32, 6, 4, {{1}, {2}});
  batch.samples = 1;
  EXPECT_THROW(batch.run(kernels()), std::logic_error);
}

TEST_P(KernelsOnEveryDevice, CtcRefusesTooLittleScratchMemory) {
  CtcBatch batch = random_batch(DType::Float32, 6, 4, {{1}, {2}});
  Ctc arguments = batch.arguments();
  arguments.scratch.shape = {arguments.scratch.elements() - 1};
  EXPECT_THROW(kernels().ctc(arguments), std::logic_error);
}

}  // namespace
}  // namespace trivet::kernels::ctc_test
