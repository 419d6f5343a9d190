// The loss of pairs of answers: compared with the formulas of the papers, and its factors with differences of the loss.
#include "kernels/preference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/kernels.h"

namespace trivet::kernels::preference_test {
namespace {

constexpr PreferenceRule kRules[] = {{PreferenceLossType::Sigmoid, 0.3, 0},
                                     {PreferenceLossType::Hinge, 0.3, 0},
                                     {PreferenceLossType::Ipo, 0.3, 0},
                                     {PreferenceLossType::Robust, 0.3, 0.2}};

double loss_by_formula(const PreferenceRule& rule, double chosen, double chosen_tokens, double rejected,
                       double rejected_tokens) {
  const double margin = rule.beta * (chosen - rejected), e = rule.label_smoothing;
  const auto minus_log_sigmoid = [](double x) { return std::log(1 + std::exp(-x)); };
  switch (rule.loss_type) {
    case PreferenceLossType::Sigmoid: return minus_log_sigmoid(margin);
    case PreferenceLossType::Hinge: return std::max(0.0, 1 - margin);
    case PreferenceLossType::Ipo: return std::pow(chosen / chosen_tokens - rejected / rejected_tokens - 1 / (2 * rule.beta), 2);
    case PreferenceLossType::Robust:
      return ((1 - e) * minus_log_sigmoid(margin) - e * minus_log_sigmoid(-margin)) / (1 - 2 * e);
  }
  return 0;
}

TEST(PreferenceRule, LossesAreThoseOfThePapers) {
  for (const PreferenceRule& rule : kRules)
    for (const double chosen : {-7.0, 0.0, 2.5})
      for (const double rejected : {-3.0, 0.0, 6.0})
        EXPECT_NEAR(loss_of_pair(rule, {chosen, 3}, {rejected, 5}).loss, loss_by_formula(rule, chosen, 3, rejected, 5), 1e-14)
            << name_of(rule.loss_type) << " " << chosen << " " << rejected;
}

TEST(PreferenceRule, FactorsAreDerivativesByMinusTheLogProbabilities) {
  constexpr double kStep = 1e-6;
  for (const PreferenceRule& rule : kRules)
    for (const double chosen : {-7.0, 0.1, 2.5}) {
      const auto loss = [&](double c, double r) { return loss_of_pair(rule, {c, 3}, {r, 5}).loss; };
      const double rejected = 0.5;
      const PairLoss pair = loss_of_pair(rule, {chosen, 3}, {rejected, 5});
      EXPECT_NEAR(pair.chosen_factor, (loss(chosen - kStep, rejected) - loss(chosen + kStep, rejected)) / (2 * kStep), 1e-8);
      EXPECT_NEAR(pair.rejected_factor, (loss(chosen, rejected - kStep) - loss(chosen, rejected + kStep)) / (2 * kStep), 1e-8);
    }
}

TEST(PreferenceRule, LargeMarginsStayFinite) {
  const PreferenceRule sigmoid_loss{PreferenceLossType::Sigmoid, 1, 0};
  EXPECT_EQ(loss_of_pair(sigmoid_loss, {-1e4, 1}, {0, 1}).loss, 1e4);
  EXPECT_EQ(loss_of_pair(sigmoid_loss, {-1e4, 1}, {0, 1}).chosen_factor, 1);
  EXPECT_EQ(loss_of_pair(sigmoid_loss, {1e4, 1}, {0, 1}).loss, 0);
  EXPECT_EQ(loss_of_pair(sigmoid_loss, {1e4, 1}, {0, 1}).chosen_factor, 0);
  for (const PreferenceRule& rule : kRules) {
    const PairLoss pair = loss_of_pair(rule, {std::numeric_limits<double>::quiet_NaN(), 1}, {0, 1});
    EXPECT_TRUE(std::isnan(pair.loss) && std::isnan(pair.chosen_factor)) << name_of(rule.loss_type);
  }
}

// Two pairs of rows of 3 tokens and a pair that does not count, because its second row has no targets.
struct PairBatch {
  std::vector<double> losses{9, 1, 2, 4, 8, 9, 1, 1, 1, 7, 7, 5, 1, 1, 1, 1, 1, 1},
      factors = std::vector<double>(18, -1), reference{-2, -20, -3, -6, -1, -1}, log_probabilities = std::vector<double>(6);
  std::vector<int32_t> targets{-1, 3, 0, 5, 1, -1, 0, 0, 0, -1, -1, 2, 4, 4, 4, -1, -1, -1};
  double loss[2] = {0.5, 7}, correct = 1, rewards[2] = {10, 20};

  PreferenceLoss arguments() {
    return {.row_losses = {losses.data(), DType::Float64, {6, 3}},
            .targets = {targets.data(), DType::Int32, {6, 3}},
            .reference = {reference.data(), DType::Float64, {6}},
            .rule = {PreferenceLossType::Sigmoid, 0.5, 0},
            .factors = {factors.data(), DType::Float64, {6, 3}},
            .log_probabilities = {log_probabilities.data(), DType::Float64, {6}},
            .loss = {loss, DType::Float64, {2}},
            .correct = {&correct, DType::Float64, {1}},
            .rewards = {rewards, DType::Float64, {2}}};
  }
};

TEST(CpuPreferenceLoss, ComparesPairsOfRows) {
  PairBatch batch;
  make_cpu_kernels(2)->preference_loss(batch.arguments());
  EXPECT_EQ(batch.log_probabilities, (std::vector<double>{-3, -12, -3, -5, -3, 0}));
  // Ratios: -3 + 2 = -1 and -12 + 20 = 8; -3 + 3 = 0 and -5 + 6 = 1. So both rejected answers have the higher reward.
  const double margins[] = {0.5 * (-1 - 8), 0.5 * (0 - 1)};
  const auto minus_log_sigmoid = [](double x) { return std::log(1 + std::exp(-x)); };
  EXPECT_NEAR(batch.loss[0], 0.5 + minus_log_sigmoid(margins[0]) + minus_log_sigmoid(margins[1]), 1e-14);
  EXPECT_EQ(batch.loss[1], 9);
  EXPECT_EQ(batch.correct, 1);
  EXPECT_EQ(batch.rewards[0], 10 + 0.5 * -1);
  EXPECT_EQ(batch.rewards[1], 20 + 0.5 * 9);
  for (int64_t row = 0; row < 6; ++row) {
    const double sign = row % 2 == 0 ? 1 : -1, margin = margins[row / 2 % 2];
    for (int64_t t = 0; t < 3; ++t)
      EXPECT_NEAR(batch.factors[row * 3 + t], row >= 4 ? 0 : sign * 0.5 / (1 + std::exp(margin)), 1e-15) << row;
  }
}

TEST(CpuPreferenceLoss, FactorsMayOverwriteTheLosses) {
  PairBatch apart, inside;
  make_cpu_kernels(1)->preference_loss(apart.arguments());
  PreferenceLoss arguments = inside.arguments();
  arguments.factors = {inside.losses.data(), DType::Float64, {6, 3}};
  make_cpu_kernels(1)->preference_loss(arguments);
  EXPECT_EQ(inside.losses, apart.factors);
}

TEST(CpuPreferenceLoss, CountsAnswersThatHaveTheHigherReward) {
  PairBatch batch;
  batch.reference = {-9, -12, -3, -5, 0, 0};  // ratios 6 and 0, then 0 and 0, which is not higher
  make_cpu_kernels(1)->preference_loss(batch.arguments());
  EXPECT_EQ(batch.correct, 2);
}

TEST(CpuPreferenceLoss, NeedsPairs) {
  PairBatch batch;
  PreferenceLoss arguments = batch.arguments();
  arguments.reference.shape = {5};
  EXPECT_THROW(make_cpu_kernels(1)->preference_loss(arguments), std::logic_error);
  arguments = batch.arguments();
  arguments.row_losses.shape = arguments.targets.shape = {3, 6};
  EXPECT_THROW(make_cpu_kernels(1)->preference_loss(arguments), std::logic_error);
}

// What cross_entropy gives and takes for it.
TEST(CpuCrossEntropy, GivesLossesOfRowsAndTakesFactors) {
  std::vector<float> logits{0.5f, -1, 2, 0, 1, 1, 3, -2, 0.25f}, plain(9), scaled(9);
  std::vector<int32_t> targets{2, -1, 0};
  std::vector<double> losses(3, 77), factors{-2, 5, 0.5};
  double sum[2] = {};
  const auto kernels = make_cpu_kernels(1);
  const CrossEntropy both{.logits = {logits.data(), DType::Float32, {3, 3}},
                          .targets = {targets.data(), DType::Int32, {3}},
                          .dlogits = {plain.data(), DType::Float32, {3, 3}},
                          .gradient_scale = 0.25,
                          .loss = {sum, DType::Float64, {2}},
                          .row_losses = {losses.data(), DType::Float64, {3}}};
  kernels->cross_entropy(both);
  EXPECT_EQ(losses[1], 0);
  EXPECT_EQ(sum[0], losses[0] + losses[2]);
  EXPECT_NEAR(losses[2], std::log(std::exp(3) + std::exp(-2) + std::exp(0.25)) - 3, 1e-6);
  CrossEntropy with_factors = both;
  with_factors.loss = with_factors.row_losses = {};
  with_factors.dlogits = {scaled.data(), DType::Float32, {3, 3}};
  with_factors.row_factors = {factors.data(), DType::Float64, {3}};
  kernels->cross_entropy(with_factors);
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(scaled[i], static_cast<float>(factors[i / 3]) * plain[i]) << i;  // powers of two
}

}  // namespace
}  // namespace trivet::kernels::preference_test
