// The loss of pairs of answers: compared with the formulas of the papers, and its factors with differences of the loss.
#include "kernels/preference.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "core/random.h"
#include "tests/kernels/every_device.h"

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

TEST_P(KernelsOnEveryDevice, PreferenceRuleLossesAreThoseOfThePapers) {
  for (const PreferenceRule& rule : kRules)
    for (const double chosen : {-7.0, 0.0, 2.5})
      for (const double rejected : {-3.0, 0.0, 6.0})
        EXPECT_NEAR(loss_of_pair(rule, {chosen, 3}, {rejected, 5}).loss, loss_by_formula(rule, chosen, 3, rejected, 5), 1e-14)
            << name_of(rule.loss_type) << " " << chosen << " " << rejected;
}

TEST_P(KernelsOnEveryDevice, PreferenceRuleFactorsAreDerivativesByMinusTheLogProbabilities) {
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

TEST_P(KernelsOnEveryDevice, PreferenceRuleLargeMarginsStayFinite) {
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
  Values<double> losses{9, 1, 2, 4, 8, 9, 1, 1, 1, 7, 7, 5, 1, 1, 1, 1, 1, 1},
      factors = Values<double>(18, -1), reference{-2, -20, -3, -6, -1, -1}, log_probabilities = Values<double>(6);
  Values<int32_t> targets{-1, 3, 0, 5, 1, -1, 0, 0, 0, -1, -1, 2, 4, 4, 4, -1, -1, -1};
  Values<double> loss{0.5, 7}, correct{1}, rewards{10, 20};

  PreferenceLoss arguments() {
    return {.row_losses = view_of(losses, {6, 3}),
            .targets = view_of(targets, {6, 3}),
            .reference = view_of(reference),
            .rule = {PreferenceLossType::Sigmoid, 0.5, 0},
            .factors = view_of(factors, {6, 3}),
            .log_probabilities = view_of(log_probabilities),
            .loss = view_of(loss),
            .correct = view_of(correct),
            .rewards = view_of(rewards)};
  }
};

TEST_P(KernelsOnEveryDevice, PreferenceLossComparesPairsOfRows) {
  PairBatch batch;
  kernels().preference_loss(batch.arguments());
  EXPECT_EQ(batch.log_probabilities, (Values<double>{-3, -12, -3, -5, -3, 0}));
  // Ratios: -3 + 2 = -1 and -12 + 20 = 8; -3 + 3 = 0 and -5 + 6 = 1. So both rejected answers have the higher reward.
  const double margins[] = {0.5 * (-1 - 8), 0.5 * (0 - 1)};
  const auto minus_log_sigmoid = [](double x) { return std::log(1 + std::exp(-x)); };
  EXPECT_NEAR(batch.loss[0], 0.5 + minus_log_sigmoid(margins[0]) + minus_log_sigmoid(margins[1]), 1e-14);
  EXPECT_EQ(batch.loss[1], 9);
  EXPECT_EQ(batch.correct[0], 1);
  EXPECT_EQ(batch.rewards[0], 10 + 0.5 * -1);
  EXPECT_EQ(batch.rewards[1], 20 + 0.5 * 9);
  for (int64_t row = 0; row < 6; ++row) {
    const double sign = row % 2 == 0 ? 1 : -1, margin = margins[row / 2 % 2];
    for (int64_t t = 0; t < 3; ++t)
      EXPECT_NEAR(batch.factors[row * 3 + t], row >= 4 ? 0 : sign * 0.5 / (1 + std::exp(margin)), 1e-15) << row;
  }
}

TEST_P(KernelsOnEveryDevice, PreferenceLossFactorsMayOverwriteTheLosses) {
  PairBatch apart, inside;
  kernels().preference_loss(apart.arguments());
  PreferenceLoss arguments = inside.arguments();
  arguments.factors = view_of(inside.losses, {6, 3});
  kernels().preference_loss(arguments);
  EXPECT_EQ(inside.losses, apart.factors);
}

TEST_P(KernelsOnEveryDevice, PreferenceLossCountsAnswersThatHaveTheHigherReward) {
  PairBatch batch;
  batch.reference = {-9, -12, -3, -5, 0, 0};  // ratios 6 and 0, then 0 and 0, which is not higher
  kernels().preference_loss(batch.arguments());
  EXPECT_EQ(batch.correct[0], 2);
}

// Pairs of documents of (preferred, rejected) tokens. Some have more tokens than a block has threads, and none of the fourth
// answer counts.
constexpr std::array<std::array<int64_t, 2>, 4> kDocuments{{{3, 5}, {300, 1}, {1, 700}, {40, 41}}};

// Rows of pairs, with documents or with one answer each, and what the kernel makes of them.
struct DocumentRows {
  int64_t rows, length;
  bool packed;
  Values<double> losses = Values<double>(rows * length), factors = Values<double>(rows * length, -1);
  Values<int32_t> targets = Values<int32_t>(rows * length, -1), documents = Values<int32_t>(rows * length, int32_t(length));
  Values<double> reference = Values<double>(packed ? rows * length : rows), log_probabilities = reference;
  Values<double> sums = Values<double>(5);  // loss and pairs, correct, rewards

  void put(int64_t row, int64_t first, size_t answer) {
    for (int64_t t = 0; t < kDocuments[answer / 2][answer % 2]; ++t) {
      const int64_t at = row * length + first + t;
      const PhiloxBlock draw = philox(5, answer, static_cast<uint64_t>(t));
      documents[at] = static_cast<int32_t>(first);
      if (t > 0 && (answer == 7 || draw[0] % 3 == 0)) continue;
      targets[at] = answer == 6 ? -1 : 2;
      losses[at] = 0.1 * unit_float(draw[1]);
    }
    reference[place(row, first)] = -0.3 * static_cast<double>(answer);
  }
  int64_t place(int64_t row, int64_t first) const { return packed ? row * length + first : row; }
  void compare(Kernels& kernels, const PreferenceRule& rule) {
    const Shape answers{static_cast<int64_t>(reference.size())};
    kernels.preference_loss({.row_losses = view_of(losses, {rows, length}),
                             .targets = view_of(targets, {rows, length}),
                             .documents = packed ? view_of(documents, {rows, length}) : TensorView(),
                             .reference = view_of(reference, answers),
                             .rule = rule,
                             .factors = view_of(factors, {rows, length}),
                             .log_probabilities = view_of(log_probabilities, answers),
                             .loss = view_of(sums, {5}).slice(0, 2),
                             .correct = view_of(sums, {5}).slice(2, 1),
                             .rewards = view_of(sums, {5}).slice(3, 2)});
  }
};

TEST_P(KernelsOnEveryDevice, PreferenceLossOfDocumentsHasTheBitsOfRowsOfTheirOwn) {
  for (const PreferenceRule& rule : kRules) {
    DocumentRows packed{.rows = 4, .length = 750, .packed = true}, alone{.rows = 8, .length = 700, .packed = false};
    std::array<int64_t, 8> rows{}, firsts{};  // by answer
    std::array<int64_t, 4> used{};
    for (size_t answer = 0; answer < 8; ++answer) {
      rows[answer] = static_cast<int64_t>(answer / 4 * 2 + answer % 2);
      firsts[answer] = used[rows[answer]];
      used[rows[answer]] += kDocuments[answer / 2][answer % 2];
      packed.put(rows[answer], firsts[answer], answer);
      alone.put(static_cast<int64_t>(answer), 0, answer);
    }
    packed.compare(kernels(), rule);
    alone.compare(kernels(), rule);
    EXPECT_EQ(packed.sums, alone.sums) << name_of(rule.loss_type);
    EXPECT_EQ(packed.sums[1], 3);
    for (size_t answer = 0; answer < 8; ++answer) {
      const int64_t at = rows[answer] * packed.length + firsts[answer], other = static_cast<int64_t>(answer) * alone.length;
      EXPECT_EQ(packed.log_probabilities[at], alone.log_probabilities[answer]) << answer;
      for (int64_t t = 0; t < kDocuments[answer / 2][answer % 2]; ++t)
        ASSERT_EQ(packed.factors[at + t], alone.factors[other + t]) << answer << " " << t;
    }
    for (int64_t row = 0; row < 4; ++row)
      for (int64_t t = used[row]; t < packed.length; ++t) ASSERT_EQ(packed.factors[row * packed.length + t], 0) << "padding";
  }
}

TEST_P(KernelsOnEveryDevice, PreferenceLossNeedsPairs) {
  PairBatch batch;
  PreferenceLoss arguments = batch.arguments();
  arguments.reference.shape = {5};
  EXPECT_THROW(kernels().preference_loss(arguments), std::logic_error);
  arguments = batch.arguments();
  arguments.documents = arguments.targets;  // and a reference for each token
  EXPECT_THROW(kernels().preference_loss(arguments), std::logic_error);
  arguments = batch.arguments();
  arguments.row_losses.shape = arguments.targets.shape = {3, 6};
  EXPECT_THROW(kernels().preference_loss(arguments), std::logic_error);
}

// Sums of a row are made in another order, in double, and the functions of both are off by units of double.
TEST_P(KernelsOnEveryDevice, PreferenceLossIsNearTheCpusWithEveryRule) {
  for (PreferenceRule rule : kRules)
    for (const auto& [rows, length] : {std::pair<int64_t, int64_t>{0, 4}, {2, 5}, {6, 37}, {4, 700}}) {
      const HostTensor noise = HostTensor::random(DType::Float64, {rows, length}, 1);
      const HostTensor reference = HostTensor::random(DType::Float64, {rows}, 2);
      if (rule.loss_type == PreferenceLossType::Hinge) rule.beta = 0.03;  // otherwise most losses are 0
      Values<double> losses;
      Values<int32_t> targets;
      for (int64_t e = 0; e < rows * length; ++e) {
        const int64_t row = e / length;
        losses.push_back(1 + noise.at(e));
        targets.push_back((row + 2 >= rows && row % 2 == 1) || e % length < row % 3 ? -1 : 5);
      }
      const auto results = [&, n = rows, t = length](Kernels& kernels) {
        HostTensor factors = HostTensor::poisoned(DType::Float64, {n, t}), sums = HostTensor::poisoned(DType::Float64, {n});
        HostTensor loss = HostTensor::filled(DType::Float64, {2}, 0.5), rewards = HostTensor::filled(DType::Float64, {2}, 4);
        HostTensor correct = HostTensor::filled(DType::Float64, {1}, 3);
        kernels.preference_loss({.row_losses = view_of(losses, {n, t}),
                                 .targets = view_of(targets, {n, t}),
                                 .reference = reference.view(),
                                 .rule = rule,
                                 .factors = factors.view(),
                                 .log_probabilities = sums.view(),
                                 .loss = loss.view(),
                                 .correct = correct.view(),
                                 .rewards = rewards.view()});
        Values<double> inside = losses;
        kernels.preference_loss({.row_losses = view_of(inside, {n, t}),
                                 .targets = view_of(targets, {n, t}),
                                 .reference = reference.view(),
                                 .rule = rule,
                                 .factors = view_of(inside, {n, t})});
        for (int64_t e = 0; e < n * t; ++e) EXPECT_EQ(inside[e], factors.at(e));
        return std::vector{factors, sums, loss, rewards, correct};
      };
      const auto here = same_bits_every_way(results), of_cpu = results(*make_cpu_kernels(1));
      for (size_t i = 0; i < here.size(); ++i)
        for (int64_t e = 0; e < here[i].elements(); ++e)
          ASSERT_NEAR(here[i].at(e), of_cpu[i].at(e), 1e-13 * (std::abs(of_cpu[i].at(e)) + (i == 3 ? 1 : 0.01))) << i;
      EXPECT_EQ(here.back(), of_cpu.back());
    }
}

}  // namespace
}  // namespace trivet::kernels::preference_test
