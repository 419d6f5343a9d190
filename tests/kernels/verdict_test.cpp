// Tests the verdict on gradients (apply, scale or skip the update), and that every optimizer obeys it.
#include "kernels/verdict.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "tests/kernels/every_device.h"

namespace trivet::kernels::verdict_test {
namespace {

Values<int64_t> words_of(const ExactSum& sum) { return {sum.words().begin(), sum.words().end()}; }

// The verdict on gradients with this sum of squares, if `targets` targets counted.
Values<double> judged(Kernels& kernels, const ExactSum& squares, int64_t targets, const GradientRules& rules) {
  Values<int64_t> sum = words_of(squares), losses(ExactSum::kWords + 1);
  losses.back() = targets;
  Values<double> verdict(kVerdictSize, -7);
  kernels.judge_gradients({.square_sum = view_of(sum),
                           .losses = view_of(losses),
                           .verdict = view_of(verdict),
                           .unit = rules.unit,
                           .clipping = rules.clipping,
                           .check_finite = rules.check_finite});
  return verdict;
}

ExactSum of(std::initializer_list<double> terms) {
  ExactSum sum;
  for (double term : terms) sum.add(term);
  return sum;
}

TEST_P(KernelsOnEveryDevice, VerdictIsTheMeanOverTargetsThatCount) {
  EXPECT_EQ(judged(kernels(), of({9, 16}), 40, {.unit = 10}), (Values<double>{1.25, 0.25, 1}));
}

TEST_P(KernelsOnEveryDevice, VerdictDoesNotApplyAStepWithoutTargets) {
  EXPECT_EQ(judged(kernels(), of({9, 16}), 0, {.unit = 10}), (Values<double>{50, 10, 0}));
  EXPECT_EQ(judged(kernels(), of({}), 0, {.unit = 10, .check_finite = false})[kApply], 0);
  EXPECT_EQ(judged(kernels(), of({}), 1, {.unit = 10})[kApply], 1);
}

TEST_P(KernelsOnEveryDevice, VerdictClipsOnlyLongGradients) {
  const Values<double> clipped = judged(kernels(), of({9, 16}), 1, {.unit = 1, .clipping = 2});
  EXPECT_EQ(clipped[kNorm], 5);
  EXPECT_DOUBLE_EQ(clipped[kFactor], 2 / (5 + 1e-6));
  EXPECT_EQ(judged(kernels(), of({9, 16}), 1, {.unit = 1, .clipping = 6})[kFactor], 1);
  EXPECT_EQ(judged(kernels(), of({}), 1, {.unit = 1, .clipping = 6}), (Values<double>{0, 1, 1}));
}

TEST_P(KernelsOnEveryDevice, VerdictSkipsWhatIsNotFiniteWhereThatIsChecked) {
  const ExactSum infinite = of({1, HUGE_VAL});
  const Values<double> skipped = judged(kernels(), infinite, 4, {.unit = 2, .clipping = 1});
  EXPECT_TRUE(std::isnan(skipped[kNorm]));
  EXPECT_EQ(skipped[kApply], 0);
  EXPECT_EQ(judged(kernels(), infinite, 4, {.unit = 2, .check_finite = false})[kApply], 1);
}

TEST_P(KernelsOnEveryDevice, SumLossesAddsExactlyAndCounts) {
  Values<double> losses{1e20, 3, 1, 1.0, 4, 0, -1e20, 5, 2};
  Values<int64_t> words(ExactSum::kWords + kLossCounts);
  for (int round = 0; round < 2; ++round)
    kernels().sum_losses({.losses = view_of(losses, {3, 1 + kLossCounts}), .words = view_of(words)});
  EXPECT_EQ(ExactSum::value_of(words.data()), 2);
  EXPECT_EQ(words[ExactSum::kWords], 24);
  EXPECT_EQ(words.back(), 6);
}

TEST_P(KernelsOnEveryDevice, SumLossesAddsFurtherNumbersExactly) {
  Values<double> losses{1e20, 3, 1, 0.5, -1e18, -1e20, 4, 0, 0.25, 1e18, 2, 5, 2, -3, INFINITY};
  Values<int64_t> words(static_cast<size_t>(SumLosses::loss_words(2)));
  kernels().sum_losses({.losses = view_of(losses, {3, 3 + 2}), .words = view_of(words)});
  EXPECT_EQ(ExactSum::value_of(words.data()), 2);
  EXPECT_EQ(words[ExactSum::kWords], 12);
  EXPECT_EQ(words[ExactSum::kWords + 1], 3);
  EXPECT_EQ(ExactSum::value_of(words.data() + SumLosses::loss_words(0)), -2.25);
  EXPECT_TRUE(std::isnan(ExactSum::value_of(words.data() + SumLosses::loss_words(1))));
}

constexpr int64_t kSize = 37;

struct Tensors {
  HostTensor master = HostTensor::random(DType::Float32, {kSize}, 1), first = HostTensor::random(DType::Float32, {kSize}, 2);
  HostTensor second = HostTensor::filled(DType::Float32, {kSize}, 0.5), third = HostTensor::filled(DType::Float32, {kSize}, 7);
  HostTensor gradient = HostTensor::random(DType::Float32, {kSize}, 4);
  bool operator==(const Tensors&) const = default;
};
using Update = std::function<void(Kernels&, Tensors&, ConstTensorView verdict, double gradient_scale)>;

std::vector<std::pair<const char*, Update>> optimizers() {
  return {{"adam",
           [](Kernels& kernels, Tensors& t, ConstTensorView verdict, double scale) {
             kernels.adam({.master = t.master.view(),
                           .moment1 = t.first.view(),
                           .moment2 = t.second.view(),
                           .gradient = t.gradient.view(),
                           .verdict = verdict,
                           .gradient_scale = scale});
           }},
          {"sgd",
           [](Kernels& kernels, Tensors& t, ConstTensorView verdict, double scale) {
             kernels.sgd({.master = t.master.view(),
                          .momentum_buffer = t.first.view(),
                          .gradient = t.gradient.view(),
                          .verdict = verdict,
                          .momentum = 0.9,
                          .gradient_scale = scale});
           }},
          {"lion",
           [](Kernels& kernels, Tensors& t, ConstTensorView verdict, double scale) {
             kernels.lion({.master = t.master.view(),
                           .moment = t.first.view(),
                           .gradient = t.gradient.view(),
                           .verdict = verdict,
                           .gradient_scale = scale});
           }},
          {"adagrad",
           [](Kernels& kernels, Tensors& t, ConstTensorView verdict, double scale) {
             kernels.adagrad({.master = t.master.view(),
                              .sum_of_squares = t.second.view(),
                              .gradient = t.gradient.view(),
                              .verdict = verdict,
                              .gradient_scale = scale});
           }},
          {"lamb_update",
           [](Kernels& kernels, Tensors& t, ConstTensorView verdict, double scale) {
             kernels.lamb_update({.master = t.master.view(),
                                  .moment1 = t.first.view(),
                                  .moment2 = t.second.view(),
                                  .update = t.third.view(),
                                  .gradient = t.gradient.view(),
                                  .verdict = verdict,
                                  .gradient_scale = scale});
           }},
          {"momentum_update", [](Kernels& kernels, Tensors& t, ConstTensorView verdict, double scale) {
             kernels.momentum_update({.momentum_buffer = t.first.view(),
                                      .out = t.third.view(),
                                      .gradient = t.gradient.view(),
                                      .verdict = verdict,
                                      .gradient_scale = scale});
           }}};
}

TEST_P(KernelsOnEveryDevice, VerdictScalesTheGradientOfEveryOptimizerOrStopsIt) {
  for (const auto& [name, update] : optimizers()) {
    const Tensors before;
    Tensors scaled, told, stopped;
    Values<double> verdict{0, 0.25, 1};
    update(kernels(), scaled, {}, 2 * 0.25);
    update(kernels(), told, view_of(verdict), 2);
    EXPECT_TRUE(told == scaled) << name;
    EXPECT_FALSE(told == before) << name;
    verdict[kApply] = 0;
    update(kernels(), stopped, view_of(verdict), 2);
    EXPECT_TRUE(stopped == before) << name;
  }
}

// The verdict goes from one kernel to the next, as in training: not even weight decay may move a weight.
TEST_P(KernelsOnEveryDevice, VerdictOfAStepWithoutTargetsChangesNothing) {
  for (const int64_t targets : {0, 12}) {
    Tensors t;
    Values<int64_t> losses(ExactSum::kWords + 1), squares(ExactSum::kWords);
    losses.back() = targets;
    Values<double> verdict(kVerdictSize, -7);
    kernels().judge_gradients({.square_sum = view_of(squares), .losses = view_of(losses), .verdict = view_of(verdict)});
    kernels().adam({.master = t.master.view(),
                    .moment1 = t.first.view(),
                    .moment2 = t.second.view(),
                    .gradient = t.gradient.view(),
                    .verdict = view_of(verdict),
                    .weight_decay = 0.1});
    EXPECT_EQ(t == Tensors(), targets == 0);
  }
}

TEST_P(KernelsOnEveryDevice, VerdictStopsAnUpdateThatWasPrepared) {
  Tensors t;
  const Tensors before;
  Values<double> verdict{0, 1, 0};
  kernels().apply_update({.master = t.master.view(), .update = t.first.view(), .verdict = view_of(verdict)});
  EXPECT_TRUE(t == before);
}

TEST_P(KernelsOnEveryDevice, VerdictStopsRunningAveragesButDoesNotScaleThem) {
  const auto moved = [&](Values<double> verdict) {
    HostTensor average = HostTensor::filled(DType::Float32, {1}, 8), gradient = HostTensor::filled(DType::Float32, {1}, 64);
    kernels().running_average({.master = average.view(),
                               .gradient = gradient.view(),
                               .verdict = view_of(verdict),
                               .momentum = 0.25,
                               .share = 0.125,
                               .gradient_scale = 0.5});
    return average.at(0);
  };
  EXPECT_EQ(moved({0, 0.01, 1}), 0.75 * 8 + 0.25 * 64 * 0.5 * 0.125);
  EXPECT_EQ(moved({0, 0.01, 0}), 8);
}

// w -= scale * ratio * u with ratio = ||w|| / ||u|| in bounds, 1 where either is 0 (You et al. 2020).
TEST_P(KernelsOnEveryDevice, TrustRatioIsTheQuotientOfTheNormsWithinBounds) {
  const auto ratio_of = [&](double weights, double update) {
    Values<int64_t> words;
    for (double square : {weights, update}) {
      ExactSum sum;
      sum.add(square);
      words.insert(words.end(), sum.words().begin(), sum.words().end());
    }
    HostTensor master = HostTensor::filled(DType::Float32, {1}, 0), step = HostTensor::filled(DType::Float32, {1}, 1);
    kernels().apply_update({.master = master.view(),
                            .update = step.view(),
                            .scale = 2,
                            .square_sums = view_of(words, {2, ExactSum::kWords}),
                            .min_ratio = 0.5,
                            .max_ratio = 4});
    return -master.at(0) / 2;
  };
  EXPECT_EQ(ratio_of(9, 4), 1.5);
  EXPECT_EQ(ratio_of(1, 100), 0.5);
  EXPECT_EQ(ratio_of(10000, 1), 4);
  EXPECT_EQ(ratio_of(0, 1), 1);
  EXPECT_EQ(ratio_of(1, 0), 1);
}

}  // namespace
}  // namespace trivet::kernels::verdict_test
