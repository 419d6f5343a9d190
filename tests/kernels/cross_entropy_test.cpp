#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/math.h"
#include "tests/kernels/host_tensor.h"
#include "tests/kernels/results.h"

namespace trivet::kernels::cross_entropy_test {
namespace {

struct Problem {
  HostTensor logits, dlogits;
  std::vector<int32_t> targets;
  int64_t rows, vocabulary;
  double scale = 0.125;

  Problem(DType dtype, DType out, int64_t rows_, int64_t vocabulary_, uint64_t seed = 7)
      : logits(dtype, {rows_, vocabulary_}),
        dlogits(HostTensor::poisoned(out, {rows_, vocabulary_})),
        rows(rows_),
        vocabulary(vocabulary_) {
    const HostTensor noise = HostTensor::random(DType::Float64, {rows, vocabulary}, seed);
    for (int64_t e = 0; e < noise.elements(); ++e) logits.set(e, 10 * noise.at(e));
    for (int64_t row = 0; row < rows; ++row) targets.push_back(row % 5 == 3 ? -1 : static_cast<int32_t>(row * 37 % vocabulary));
  }
  CrossEntropy args() {
    return {.logits = logits.view(),
            .targets = {targets.data(), DType::Int32, Shape{rows}},
            .dlogits = dlogits.view(),
            .gradient_scale = scale};
  }
};

struct Reference {
  double loss_sum = 0;
  std::vector<double> gradient;
};

Reference reference(const Problem& p) {
  Reference result{0, std::vector<double>(p.rows * p.vocabulary, 0.0)};
  for (int64_t row = 0; row < p.rows; ++row) {
    if (p.targets[row] < 0) continue;
    double total = 0;
    for (int64_t v = 0; v < p.vocabulary; ++v) total += std::exp(p.logits.at(row * p.vocabulary + v));
    result.loss_sum += std::log(total) - p.logits.at(row * p.vocabulary + p.targets[row]);
    for (int64_t v = 0; v < p.vocabulary; ++v)
      result.gradient[row * p.vocabulary + v] =
          (std::exp(p.logits.at(row * p.vocabulary + v)) / total - (v == p.targets[row] ? 1 : 0)) * p.scale;
  }
  return result;
}

// exp is off by at most two units (lanes_test.cpp), x - max by half a unit of a number up to 20 (20 * 2^-24 relative in the
// result), and at most 64 terms are added in float32 before the sum continues in double: 100 units of 2^-24 cover all of it.
// The logits themselves are exact in both computations.
constexpr double kFloatTolerance = 100 * 0x1p-24;

Loss cross_entropy(const CrossEntropy& args, int threads) {
  return loss_of(args, [&](const CrossEntropy& with_loss) { cpu::compute(with_loss, threads); });
}

TEST(CpuCrossEntropy, LossAndGradientMatchDoubleReference) {
  const std::pair<DType, DType> types[] = {{DType::Float32, DType::Float32},   {DType::Float32, DType::BFloat16},
                                           {DType::BFloat16, DType::BFloat16}, {DType::BFloat16, DType::Float32},
                                           {DType::Float16, DType::Float16},   {DType::Float64, DType::Float64}};
  for (const auto& [dtype, out] : types)
    for (const auto& [rows, vocabulary] :
         {std::pair<int64_t, int64_t>{1, 1}, {1, 2}, {7, 5}, {64, 256}, {3, 50257}, {9, 1025}}) {
      Problem problem(dtype, out, rows, vocabulary);
      const Reference expected = reference(problem);
      const Loss result = cross_entropy(problem.args(), 2);
      const double relative = dtype == DType::Float64 ? 1e-13 : kFloatTolerance;
      EXPECT_EQ(result.tokens, std::count_if(problem.targets.begin(), problem.targets.end(), [](int32_t t) { return t >= 0; }));
      EXPECT_NEAR(result.loss_sum, expected.loss_sum, relative * (expected.loss_sum + static_cast<double>(rows)));
      for (int64_t e = 0; e < rows * vocabulary; ++e) {
        const double magnitude = std::abs(expected.gradient[e]) + (dtype == DType::Float64 ? 1e-3 : 0.0) * problem.scale;
        // The smallest float16 number is 2^-24: below 2^-14 the rounding error is absolute, not relative.
        const double tiny = out == DType::Float16 ? 0x1p-25 : 0x1p-126;
        ASSERT_NEAR(
            problem.dlogits.at(e), expected.gradient[e],
            (relative + half_unit(out)) * magnitude + relative * problem.scale * (expected.gradient[e] < 0 ? 1 : 0) + tiny)
            << name_of(dtype) << "->" << name_of(out) << " " << rows << "x" << vocabulary << " at " << e;
      }
    }
}

TEST(CpuCrossEntropy, GradientMatchesFiniteDifferences) {
  Problem problem(DType::Float64, DType::Float64, 4, 9);
  problem.scale = 1;
  cross_entropy(problem.args(), 1);
  const double h = 1e-5;
  for (int64_t e = 0; e < problem.logits.elements(); ++e) {
    Problem up(DType::Float64, DType::Float64, 4, 9), down(DType::Float64, DType::Float64, 4, 9);
    up.logits.set(e, up.logits.at(e) + h);
    down.logits.set(e, down.logits.at(e) - h);
    const double slope = (cross_entropy(up.args(), 1).loss_sum - cross_entropy(down.args(), 1).loss_sum) / (2 * h);
    EXPECT_NEAR(problem.dlogits.at(e), slope, 1e-8);
  }
}

// What a soft cap reads, its results as logits, and the gradient of what it reads.
double capped_loss(const HostTensor& raw, double cap, Problem& problem) {
  for (int64_t e = 0; e < raw.elements(); ++e) problem.logits.set(e, cap * std::tanh(raw.at(e) / cap));
  CrossEntropy args = problem.args();
  args.soft_cap = cap;
  return cross_entropy(args, 1).loss_sum;
}

TEST(CpuCrossEntropy, GradientThroughASoftCapMatchesFiniteDifferences) {
  Problem problem(DType::Float64, DType::Float64, 4, 9);
  problem.scale = 1;
  const HostTensor raw = problem.logits;
  capped_loss(raw, 4, problem);
  const double h = 1e-5;
  for (int64_t e = 0; e < raw.elements(); ++e) {
    const auto loss = [&](double step) {
      Problem moved(DType::Float64, DType::Float64, 4, 9);
      HostTensor near = raw;
      near.set(e, raw.at(e) + step);
      return capped_loss(near, 4, moved);
    };
    EXPECT_NEAR(problem.dlogits.at(e), (loss(h) - loss(-h)) / (2 * h), 1e-8);
  }
}

// Of whole rows and of parts, apart from the logits and in their place, in other types.
TEST(CpuCrossEntropy, GradientThroughASoftCapIsTheOtherTimesASlope) {
  for (const auto& [dtype, out] :
       {std::pair{DType::Float32, DType::Float32}, {DType::Float32, DType::BFloat16}, {DType::BFloat16, DType::BFloat16}}) {
    Problem plain(dtype, out, 10, 300), capped(dtype, out, 10, 300), inside(dtype, out, 10, 300);
    CrossEntropy args = capped.args(), in_place = inside.args();
    args.soft_cap = in_place.soft_cap = 12;
    cross_entropy(plain.args(), 2);
    cross_entropy(args, 2);
    for (int64_t e = 0; e < plain.logits.elements(); ++e) {
      const double share = plain.logits.at(e) / 12, expected = plain.dlogits.at(e) * (1 - share * share);
      ASSERT_NEAR(capped.dlogits.at(e), expected, (4 * 0x1p-24 + 2 * half_unit(out)) * std::abs(plain.dlogits.at(e)));
    }
    if (dtype != out) continue;
    in_place.dlogits = inside.logits.view();
    cross_entropy(in_place, 2);
    EXPECT_EQ(inside.logits, capped.dlogits);
  }
}

TEST(CpuCrossEntropy, GradientMayOverwriteTheLogits) {
  for (DType dtype : {DType::Float32, DType::BFloat16}) {
    Problem apart(dtype, dtype, 10, 300), inside(dtype, dtype, 10, 300);
    CrossEntropy args = inside.args();
    args.dlogits = inside.logits.view();
    const Loss in_place = cross_entropy(args, 2), other = cross_entropy(apart.args(), 2);
    EXPECT_EQ(in_place.loss_sum, other.loss_sum);
    EXPECT_TRUE(inside.logits == apart.dlogits);
  }
}

TEST(CpuCrossEntropy, BitsDoNotDependOnTheNumberOfThreads) {
  for (int64_t vocabulary : {3, 256, 5000}) {
    Problem one(DType::Float32, DType::BFloat16, 130, vocabulary);
    const Loss expected = cross_entropy(one.args(), 1);
    for (int threads : {2, 4}) {
      Problem other(DType::Float32, DType::BFloat16, 130, vocabulary);
      EXPECT_EQ(cross_entropy(other.args(), threads).loss_sum, expected.loss_sum);
      EXPECT_TRUE(one.dlogits == other.dlogits);
    }
  }
}

TEST(CpuCrossEntropy, WithoutGradientTheLossIsTheSame) {
  Problem problem(DType::Float32, DType::Float32, 20, 77);
  CrossEntropy loss_only = problem.args();
  loss_only.dlogits = {};
  EXPECT_EQ(cross_entropy(loss_only, 2).loss_sum, cross_entropy(problem.args(), 2).loss_sum);
}

TEST(CpuCrossEntropy, InfiniteAndUndefinedLogitsMakeTheLossUndefinedOrInfinite) {
  for (double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Problem problem(DType::Float32, DType::Float32, 1, 40);
    problem.logits.set(33, bad);
    EXPECT_FALSE(std::isfinite(cross_entropy(problem.args(), 1).loss_sum));
    EXPECT_TRUE(std::isnan(problem.dlogits.at(33)));
  }
}

TEST(CpuCrossEntropy, TargetOutsideTheVocabularyIsRefused) {
  Problem problem(DType::Float32, DType::Float32, 2, 4);
  problem.targets[1] = 4;
  EXPECT_THROW(cross_entropy(problem.args(), 1), std::out_of_range);
}

TEST(CpuCrossEntropy, AddsToTheLoss) {
  Problem problem(DType::Float32, DType::Float32, 20, 77);
  const Loss once = cross_entropy(problem.args(), 1);
  const Loss twice = loss_of(problem.args(), [](const CrossEntropy& args) {
    cpu::compute(args, 1);
    cpu::compute(args, 1);
  });
  EXPECT_EQ(twice.loss_sum, 2 * once.loss_sum);
  EXPECT_EQ(twice.tokens, 2 * once.tokens);
}

// Row by row: right; wrong; the first of two equal logits is chosen, rightly and wrongly; no target.
TEST(CountCorrect, CountsRowsWhoseTargetHasTheLargestLogit) {
  const float logits[] = {1, 5, 2, 1, 5, 2, 4, 4, 3, 4, 4, 3, 9, 1, 1};
  const int32_t targets[] = {1, 2, 0, 1, -1};
  double correct = 10;
  make_cpu_kernels(1)->count_correct({.logits = {logits, DType::Float32, {5, 3}},
                                      .targets = {targets, DType::Int32, {5}},
                                      .correct = {&correct, DType::Float64, {1}}});
  EXPECT_EQ(correct, 12);
}

TEST(CpuCrossEntropy, NoRowsAreNoLoss) {
  Problem none(DType::Float32, DType::Float32, 0, 4);
  double loss[2] = {3.5, 7};  // the sums of earlier rows
  CrossEntropy args = none.args();
  args.loss = {loss, DType::Float64, {2}};
  for (int threads : {1, 4}) cpu::compute(args, threads);
  EXPECT_EQ(loss[0], 3.5);
  EXPECT_EQ(loss[1], 7);
}

// Rows whose target is -1 count for nothing: no loss, no token, a gradient of zero.
TEST(CpuCrossEntropy, RowsWithoutATargetAreNoLossEither) {
  Problem problem(DType::Float32, DType::Float32, 6, 9);
  std::fill(problem.targets.begin(), problem.targets.end(), -1);
  const Loss loss = cross_entropy(problem.args(), 2);
  EXPECT_EQ(loss.loss_sum, 0);
  EXPECT_EQ(loss.tokens, 0);
  for (int64_t e = 0; e < problem.dlogits.elements(); ++e) EXPECT_EQ(problem.dlogits.at(e), 0);
}

}  // namespace
}  // namespace trivet::kernels::cross_entropy_test
