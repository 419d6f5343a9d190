// Tests the verdict on gradients (apply, scale or skip the update), and that every optimizer obeys it.
#include "kernels/verdict.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "kernels/kernels.h"
#include "tests/kernels/host_tensor.h"
#include "tests/kernels/results.h"

namespace trivet::kernels::verdict_test {
namespace {

ConstTensorView words_view(const ExactSum& sum) { return {sum.words().data(), DType::Int64, {ExactSum::kWords}}; }

// The verdict on gradients with this sum of squares, if `targets` targets counted.
std::vector<double> judged(const ExactSum& squares, int64_t targets, const GradientRules& rules) {
  std::vector<int64_t> losses(ExactSum::kWords + 1);
  losses.back() = targets;
  std::vector<double> verdict(kVerdictSize, -7);
  make_cpu_kernels(1)->judge_gradients({.square_sum = words_view(squares),
                                        .losses = {losses.data(), DType::Int64, {ExactSum::kWords + 1}},
                                        .verdict = {verdict.data(), DType::Float64, {kVerdictSize}},
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

TEST(Verdict, IsTheMeanOverTargetsThatCount) {
  EXPECT_EQ(judged(of({9, 16}), 40, {.unit = 10}), (std::vector<double>{1.25, 0.25, 1}));
}

TEST(Verdict, DoesNotApplyAStepWithoutTargets) {
  EXPECT_EQ(judged(of({9, 16}), 0, {.unit = 10}), (std::vector<double>{50, 10, 0}));
  EXPECT_EQ(judged(of({}), 0, {.unit = 10, .check_finite = false})[kApply], 0);
  EXPECT_EQ(judged(of({}), 1, {.unit = 10})[kApply], 1);
}

TEST(Verdict, ClipsOnlyLongGradients) {
  const std::vector<double> clipped = judged(of({9, 16}), 1, {.unit = 1, .clipping = 2});
  EXPECT_EQ(clipped[kNorm], 5);
  EXPECT_DOUBLE_EQ(clipped[kFactor], 2 / (5 + 1e-6));
  EXPECT_EQ(judged(of({9, 16}), 1, {.unit = 1, .clipping = 6})[kFactor], 1);
  EXPECT_EQ(judged(of({}), 1, {.unit = 1, .clipping = 6}), (std::vector<double>{0, 1, 1}));
}

TEST(Verdict, SkipsWhatIsNotFiniteWhereThatIsChecked) {
  const ExactSum infinite = of({1, HUGE_VAL});
  const std::vector<double> skipped = judged(infinite, 4, {.unit = 2, .clipping = 1});
  EXPECT_TRUE(std::isnan(skipped[kNorm]));
  EXPECT_EQ(skipped[kApply], 0);
  EXPECT_EQ(judged(infinite, 4, {.unit = 2, .check_finite = false})[kApply], 1);
}

TEST(SumLosses, AddsExactlyAndCounts) {
  std::vector<double> losses{1e20, 3, 1, 1.0, 4, 0, -1e20, 5, 2};
  std::vector<int64_t> words(ExactSum::kWords + kLossCounts);
  for (int round = 0; round < 2; ++round)
    make_cpu_kernels(1)->sum_losses({.losses = {losses.data(), DType::Float64, {3, 1 + kLossCounts}},
                                     .words = {words.data(), DType::Int64, {ExactSum::kWords + kLossCounts}}});
  EXPECT_EQ(ExactSum::value_of(words.data()), 2);
  EXPECT_EQ(words[ExactSum::kWords], 24);
  EXPECT_EQ(words.back(), 6);
}

TEST(SumLosses, AddsFurtherNumbersExactly) {
  std::vector<double> losses{1e20, 3, 1, 0.5, -1e18, -1e20, 4, 0, 0.25, 1e18, 2, 5, 2, -3, 7};
  std::vector<int64_t> words(static_cast<size_t>(SumLosses::loss_words(2)));
  make_cpu_kernels(1)->sum_losses({.losses = {losses.data(), DType::Float64, {3, 3 + 2}},
                                   .words = {words.data(), DType::Int64, {SumLosses::loss_words(2)}}});
  EXPECT_EQ(ExactSum::value_of(words.data()), 2);
  EXPECT_EQ(words[ExactSum::kWords], 12);
  EXPECT_EQ(words[ExactSum::kWords + 1], 3);
  EXPECT_EQ(ExactSum::value_of(words.data() + SumLosses::loss_words(0)), -2.25);
  EXPECT_EQ(ExactSum::value_of(words.data() + SumLosses::loss_words(1)), 7);
}

TEST(DivideByNorm, GivesUnitLength) {
  for (const DType dtype : {DType::Float32, DType::Float64}) {
    HostTensor x = HostTensor::random(dtype, {1000}, 1);
    const auto kernels = make_cpu_kernels(2);
    const ExactSum squares = sum_of_squares(*kernels, x.view(), 1, kSumBlock);
    kernels->divide_by_norm(x.view(), words_view(squares), 0);
    EXPECT_NEAR(sum_of_squares(*kernels, x.view(), 1, kSumBlock).value(), 1, 1e-6);
  }
}

constexpr int64_t kSize = 37;

struct Tensors {
  HostTensor master = HostTensor::random(DType::Float32, {kSize}, 1), first = HostTensor::random(DType::Float32, {kSize}, 2);
  HostTensor second = HostTensor::filled(DType::Float32, {kSize}, 0.5), third = HostTensor::filled(DType::Float32, {kSize}, 7);
  HostTensor gradient = HostTensor::random(DType::Float32, {kSize}, 4);
  bool operator==(const Tensors&) const = default;
};
using Update = std::function<void(Tensors&, ConstTensorView verdict, double gradient_scale)>;

std::vector<std::pair<const char*, Update>> optimizers() {
  static const auto kernels = make_cpu_kernels(1);
  return {{"adam",
           [](Tensors& t, ConstTensorView verdict, double scale) {
             kernels->adam({.master = t.master.view(),
                            .moment1 = t.first.view(),
                            .moment2 = t.second.view(),
                            .gradient = t.gradient.view(),
                            .verdict = verdict,
                            .gradient_scale = scale});
           }},
          {"sgd",
           [](Tensors& t, ConstTensorView verdict, double scale) {
             kernels->sgd({.master = t.master.view(),
                           .momentum_buffer = t.first.view(),
                           .gradient = t.gradient.view(),
                           .verdict = verdict,
                           .momentum = 0.9,
                           .gradient_scale = scale});
           }},
          {"lion",
           [](Tensors& t, ConstTensorView verdict, double scale) {
             kernels->lion({.master = t.master.view(),
                            .moment = t.first.view(),
                            .gradient = t.gradient.view(),
                            .verdict = verdict,
                            .gradient_scale = scale});
           }},
          {"adagrad",
           [](Tensors& t, ConstTensorView verdict, double scale) {
             kernels->adagrad({.master = t.master.view(),
                               .sum_of_squares = t.second.view(),
                               .gradient = t.gradient.view(),
                               .verdict = verdict,
                               .gradient_scale = scale});
           }},
          {"lamb_update",
           [](Tensors& t, ConstTensorView verdict, double scale) {
             kernels->lamb_update({.master = t.master.view(),
                                   .moment1 = t.first.view(),
                                   .moment2 = t.second.view(),
                                   .update = t.third.view(),
                                   .gradient = t.gradient.view(),
                                   .verdict = verdict,
                                   .gradient_scale = scale});
           }},
          {"momentum_update", [](Tensors& t, ConstTensorView verdict, double scale) {
             kernels->momentum_update({.momentum_buffer = t.first.view(),
                                       .out = t.third.view(),
                                       .gradient = t.gradient.view(),
                                       .verdict = verdict,
                                       .gradient_scale = scale});
           }}};
}

TEST(Verdict, ScalesTheGradientOfEveryOptimizerOrStopsIt) {
  for (const auto& [name, update] : optimizers()) {
    const Tensors before;
    Tensors scaled, told, stopped;
    double verdict[] = {0, 0.25, 1};
    const ConstTensorView view{verdict, DType::Float64, {kVerdictSize}};
    update(scaled, {}, 2 * 0.25);
    update(told, view, 2);
    EXPECT_TRUE(told == scaled) << name;
    EXPECT_FALSE(told == before) << name;
    verdict[kApply] = 0;
    update(stopped, view, 2);
    EXPECT_TRUE(stopped == before) << name;
  }
}

TEST(Verdict, StopsAnUpdateThatWasPrepared) {
  Tensors t;
  const Tensors before;
  const double verdict[] = {0, 1, 0};
  make_cpu_kernels(1)->apply_update(
      {.master = t.master.view(), .update = t.first.view(), .verdict = {verdict, DType::Float64, {kVerdictSize}}});
  EXPECT_TRUE(t == before);
}

TEST(Verdict, StopsRunningAveragesButDoesNotScaleThem) {
  const auto moved = [](const std::vector<double>& verdict) {
    HostTensor average = HostTensor::filled(DType::Float32, {1}, 8), gradient = HostTensor::filled(DType::Float32, {1}, 64);
    make_cpu_kernels(1)->running_average({.master = average.view(),
                                          .gradient = gradient.view(),
                                          .verdict = {verdict.data(), DType::Float64, {kVerdictSize}},
                                          .momentum = 0.25,
                                          .share = 0.125,
                                          .gradient_scale = 0.5});
    return average.at(0);
  };
  EXPECT_EQ(moved({0, 0.01, 1}), 0.75 * 8 + 0.25 * 64 * 0.5 * 0.125);
  EXPECT_EQ(moved({0, 0.01, 0}), 8);
}

// w -= scale * ratio * u with ratio = ||w|| / ||u|| in bounds, 1 where either is 0 (You et al. 2020).
TEST(TrustRatio, IsTheQuotientOfTheNormsWithinBounds) {
  const auto ratio_of = [](double weights, double update) {
    std::vector<int64_t> words;
    for (double square : {weights, update}) {
      ExactSum sum;
      sum.add(square);
      words.insert(words.end(), sum.words().begin(), sum.words().end());
    }
    HostTensor master = HostTensor::filled(DType::Float32, {1}, 0), step = HostTensor::filled(DType::Float32, {1}, 1);
    make_cpu_kernels(1)->apply_update({.master = master.view(),
                                       .update = step.view(),
                                       .scale = 2,
                                       .square_sums = {words.data(), DType::Int64, {2, ExactSum::kWords}},
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
