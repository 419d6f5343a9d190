#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/every_device.h"
#include "tests/kernels/results.h"

namespace trivet::kernels::cross_entropy_test {
namespace {

struct Problem {
  HostTensor logits, dlogits;
  Values<int32_t> targets;
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
    return {.logits = logits.view(), .targets = view_of(targets), .dlogits = dlogits.view(), .gradient_scale = scale};
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

Loss cross_entropy(Kernels& kernels, const CrossEntropy& args) {
  return loss_of(args, [&](const CrossEntropy& with_loss) { kernels.cross_entropy(with_loss); });
}

TEST_P(KernelsOnEveryDevice, CrossEntropyLossAndGradientMatchDoubleReference) {
  const std::pair<DType, DType> types[] = {{DType::Float32, DType::Float32},   {DType::Float32, DType::BFloat16},
                                           {DType::BFloat16, DType::BFloat16}, {DType::BFloat16, DType::Float32},
                                           {DType::Float16, DType::Float16},   {DType::Float64, DType::Float64},
                                           {DType::Float32, DType::Float16}};
  for (const auto& [dtype, out] : types)
    for (const auto& [rows, vocabulary] : {std::pair<int64_t, int64_t>{1, 1},
                                           {1, 2},
                                           {7, 5},
                                           {5, 37},
                                           {64, 256},
                                           {3, 50257},
                                           {1, 60000},
                                           {9, 1025},
                                           {2, 8200}}) {
      if (takes_too_long(vocabulary == 60000 && dtype == DType::BFloat16 ? 0 : rows * vocabulary)) continue;
      Problem problem(dtype, out, rows, vocabulary);
      for (int64_t e = 0; vocabulary % 5 == 0 && vocabulary > 40 && e < problem.logits.elements(); e += 3)  // masked columns
        if (e % vocabulary != problem.targets[e / vocabulary]) problem.logits.set(e, -std::numeric_limits<double>::infinity());
      const Reference expected = reference(problem);
      const Loss result = cross_entropy(kernels(), problem.args());
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

TEST_P(KernelsOnEveryDevice, CrossEntropyGradientMatchesFiniteDifferences) {
  Problem problem(DType::Float64, DType::Float64, 4, 9);
  problem.scale = 1;
  cross_entropy(kernels(), problem.args());
  const double h = 1e-5;
  for (int64_t e = 0; e < problem.logits.elements(); ++e) {
    Problem up(DType::Float64, DType::Float64, 4, 9), down(DType::Float64, DType::Float64, 4, 9);
    up.logits.set(e, up.logits.at(e) + h);
    down.logits.set(e, down.logits.at(e) - h);
    const double slope =
        (cross_entropy(kernels(), up.args()).loss_sum - cross_entropy(kernels(), down.args()).loss_sum) / (2 * h);
    EXPECT_NEAR(problem.dlogits.at(e), slope, 1e-8);
  }
}

// What a soft cap reads, its results as logits, and the gradient of what it reads.
double capped_loss(Kernels& kernels, const HostTensor& raw, double cap, Problem& problem) {
  for (int64_t e = 0; e < raw.elements(); ++e) problem.logits.set(e, cap * std::tanh(raw.at(e) / cap));
  CrossEntropy args = problem.args();
  args.soft_cap = cap;
  return cross_entropy(kernels, args).loss_sum;
}

TEST_P(KernelsOnEveryDevice, CrossEntropyGradientThroughASoftCapMatchesFiniteDifferences) {
  Problem problem(DType::Float64, DType::Float64, 4, 9);
  problem.scale = 1;
  const HostTensor raw = problem.logits;
  capped_loss(kernels(), raw, 4, problem);
  const double h = 1e-5;
  for (int64_t e = 0; e < raw.elements(); ++e) {
    const auto loss = [&](double step) {
      Problem moved(DType::Float64, DType::Float64, 4, 9);
      HostTensor near = raw;
      near.set(e, raw.at(e) + step);
      return capped_loss(kernels(), near, 4, moved);
    };
    EXPECT_NEAR(problem.dlogits.at(e), (loss(h) - loss(-h)) / (2 * h), 1e-8);
  }
}

// Of whole rows and of parts, apart from the logits and in their place, in other types.
TEST_P(KernelsOnEveryDevice, CrossEntropyGradientThroughASoftCapIsTheOtherTimesASlope) {
  for (const auto& [dtype, out] :
       {std::pair{DType::Float32, DType::Float32}, {DType::Float32, DType::BFloat16}, {DType::BFloat16, DType::BFloat16}}) {
    Problem plain(dtype, out, 10, 300), capped(dtype, out, 10, 300), inside(dtype, out, 10, 300);
    CrossEntropy args = capped.args(), in_place = inside.args();
    args.soft_cap = in_place.soft_cap = 12;
    cross_entropy(kernels(), plain.args());
    cross_entropy(kernels(), args);
    for (int64_t e = 0; e < plain.logits.elements(); ++e) {
      const double share = plain.logits.at(e) / 12, expected = plain.dlogits.at(e) * (1 - share * share);
      ASSERT_NEAR(capped.dlogits.at(e), expected, (4 * 0x1p-24 + 2 * half_unit(out)) * std::abs(plain.dlogits.at(e)));
    }
    if (dtype != out || GetParam()->tensors_begin_anywhere()) continue;
    in_place.dlogits = inside.logits.view();
    cross_entropy(kernels(), in_place);
    EXPECT_EQ(inside.logits, capped.dlogits);
  }
}

// A GPU sums a row in packs, so that bits depend on where a tensor begins.
TEST_P(KernelsOnEveryDevice, CrossEntropyGradientMayOverwriteTheLogits) {
  if (GetParam()->tensors_begin_anywhere()) return;
  for (DType dtype : {DType::Float32, DType::BFloat16}) {
    Problem apart(dtype, dtype, 10, 300), inside(dtype, dtype, 10, 300);
    CrossEntropy args = inside.args();
    args.dlogits = inside.logits.view();
    const Loss in_place = cross_entropy(kernels(), args), other = cross_entropy(kernels(), apart.args());
    EXPECT_EQ(in_place.loss_sum, other.loss_sum);
    EXPECT_TRUE(inside.logits == apart.dlogits);
  }
}

// Instruction sets of a CPU may sum the loss in different orders.
TEST_P(KernelsOnEveryDevice, CrossEntropyBitsDoNotDependOnThreadsOrTheirOrder) {
  for (const int64_t vocabulary : {3, 256, 5000}) {
    const auto results = [&](Kernels& kernels) {
      Problem problem(DType::Float32, DType::BFloat16, takes_too_long(130 * vocabulary) ? 4 : 130, vocabulary);
      HostTensor loss(DType::Float64, {1});
      loss.set(0, cross_entropy(kernels, problem.args()).loss_sum);
      return std::vector{problem.dlogits, loss};
    };
    if (!on_cpu()) {
      same_bits_every_way(results);
      continue;
    }
    const std::vector<HostTensor> expected = results(*make_cpu_kernels(1));
    for (const int threads : {2, 4}) EXPECT_TRUE(results(*make_cpu_kernels(threads)) == expected) << threads;
  }
}

// The gradient has a factor for each row, and its scale may be a quotient of a number of the step.
TEST_P(KernelsOnEveryDevice, CrossEntropyGivesLossesOfRowsAndTakesFactors) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t vocabulary : {3, 203, 1025}) {
      Problem plain(dtype, dtype, 5, vocabulary), scaled = plain;
      Values<double> losses(5, 77), factors{-2, 5, 0.5, 3, 1};
      CrossEntropy args = plain.args();
      args.row_losses = view_of(losses);
      const double sum = cross_entropy(kernels(), args).loss_sum;
      EXPECT_EQ(losses[3], 0);
      EXPECT_NEAR(losses[0] + losses[1] + losses[2] + losses[4], sum, 1e-15 * sum);
      args = scaled.args();
      args.gradient_scale = number(kernels(), 1) / 8;
      args.row_factors = view_of(factors);
      kernels().cross_entropy(args);
      for (int64_t e = 0; e < plain.dlogits.elements(); ++e) {
        const double factor = factors[e / vocabulary], expected = factor * plain.dlogits.at(e);
        const double tiny = dtype == DType::Float16 ? 0x1p-22 : 1e-30;
        ASSERT_NEAR(scaled.dlogits.at(e), expected, (4 * half_unit(dtype) + 2 * sum_unit(dtype)) * std::abs(expected) + tiny);
      }
    }
}

TEST_P(KernelsOnEveryDevice, CrossEntropyWithoutGradientTheLossIsTheSame) {
  if (GetParam()->tensors_begin_anywhere()) return;
  Problem problem(DType::Float32, DType::Float32, 20, 77);
  CrossEntropy loss_only = problem.args();
  loss_only.dlogits = {};
  EXPECT_EQ(cross_entropy(kernels(), loss_only).loss_sum, cross_entropy(kernels(), problem.args()).loss_sum);
}

TEST_P(KernelsOnEveryDevice, CrossEntropyInfiniteAndUndefinedLogitsMakeTheLossUndefinedOrInfinite) {
  for (double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Problem problem(DType::Float32, DType::Float32, 1, 40);
    problem.logits.set(33, bad);
    EXPECT_FALSE(std::isfinite(cross_entropy(kernels(), problem.args()).loss_sum));
    EXPECT_TRUE(std::isnan(problem.dlogits.at(33)));
  }
}

// The CPU sees the targets and refuses them.
TEST_P(KernelsOnEveryDevice, CrossEntropyOfATargetThatIsNoColumnMakesNaN) {
  Problem problem(DType::Float32, DType::Float32, 2, 5);
  problem.targets[1] = 5;
  if (on_cpu()) {
    EXPECT_THROW(cross_entropy(kernels(), problem.args()), std::out_of_range);
    return;
  }
  EXPECT_TRUE(std::isnan(cross_entropy(kernels(), problem.args()).loss_sum));
  for (int64_t e = 0; e < 10; ++e) EXPECT_EQ(std::isnan(problem.dlogits.at(e)), e >= 5);
}

TEST_P(KernelsOnEveryDevice, CrossEntropyAddsToTheLoss) {
  Problem problem(DType::Float32, DType::Float32, 20, 77);
  const Loss once = cross_entropy(kernels(), problem.args());
  const Loss twice = loss_of(problem.args(), [&](const CrossEntropy& args) {
    kernels().cross_entropy(args);
    kernels().cross_entropy(args);
  });
  EXPECT_EQ(twice.loss_sum, 2 * once.loss_sum);
  EXPECT_EQ(twice.tokens, 2 * once.tokens);
}

// Row by row: right; wrong; the first of two equal logits is chosen, rightly and wrongly; no target.
TEST_P(KernelsOnEveryDevice, CountCorrectCountsRowsWhoseTargetHasTheLargestLogit) {
  Values<float> logits{1, 5, 2, 1, 5, 2, 4, 4, 3, 4, 4, 3, 9, 1, 1};
  Values<int32_t> targets{1, 2, 0, 1, -1};
  Values<double> correct{10};
  kernels().count_correct({.logits = view_of(logits, {5, 3}), .targets = view_of(targets), .correct = view_of(correct)});
  EXPECT_EQ(correct[0], 12);
}

TEST_P(KernelsOnEveryDevice, CountCorrectCountsTheCpusRows) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t rows : {0, 1, 300}) {
      const HostTensor logits = HostTensor::random(dtype, {rows, 3}, 1);
      Values<int32_t> targets;
      for (int64_t row = 0; row < rows; ++row) targets.push_back(static_cast<int32_t>(row % 4) - 1);
      const auto out = the_cpus_bits_every_way([&](Kernels& kernels) {
        HostTensor correct = HostTensor::filled(DType::Float64, {1}, 7);
        kernels.count_correct({.logits = logits.view(), .targets = view_of(targets), .correct = correct.view()});
        return std::vector{correct};
      });
      EXPECT_TRUE(rows < 300 || out[0].at(0) > 7);
    }
}

TEST_P(KernelsOnEveryDevice, CrossEntropyNoRowsAreNoLoss) {
  Problem none(DType::Float32, DType::Float32, 0, 4);
  Values<double> loss{3.5, 7};  // the sums of earlier rows
  CrossEntropy args = none.args();
  args.loss = view_of(loss);
  kernels().cross_entropy(args);
  EXPECT_EQ(loss[0], 3.5);
  EXPECT_EQ(loss[1], 7);
}

// Rows whose target is -1 count for nothing: no loss, no token, a gradient of zero.
TEST_P(KernelsOnEveryDevice, CrossEntropyRowsWithoutATargetAreNoLossEither) {
  Problem problem(DType::Float32, DType::Float32, 6, 9);
  std::fill(problem.targets.begin(), problem.targets.end(), -1);
  const Loss loss = cross_entropy(kernels(), problem.args());
  EXPECT_EQ(loss.loss_sum, 0);
  EXPECT_EQ(loss.tokens, 0);
  for (int64_t e = 0; e < problem.dlogits.elements(); ++e) EXPECT_EQ(problem.dlogits.at(e), 0);
}

// The columns [first, first + count) of each row, as a rank holds them.
HostTensor part_of(const HostTensor& whole, int64_t rows, int64_t columns, int64_t first, int64_t count) {
  HostTensor part(whole.view().dtype, {rows, count});
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t v = 0; v < count; ++v) part.set(row * count + v, whole.at(row * columns + first + v));
  return part;
}

// A row in eight chunks, one of them empty, on one rank has the same bits as in two parts of four chunks that a tree joins.
TEST_P(KernelsOnEveryDevice, CrossEntropyOfPartsIsThatOfTheWholeRow) {
  constexpr int64_t kRows = 7, kColumns = 101;
  constexpr int64_t kFirst[] = {0, 52}, kCount[] = {52, 49};
  const std::vector<int64_t> ends{13, 26, 26, 52, 65, 78, 91, 101};
  const std::vector<int64_t> part_ends[] = {{13, 26, 26, 52}, {13, 26, 39, 49}};
  for (const DType dtype : kFloatTypes)
    for (const double soft_cap : {0.0, 12.0}) {
      const DType wide = statistics_of(dtype);
      Problem whole(dtype, dtype, kRows, kColumns);
      Values<double> losses(kRows), factors{2, -1, 0.5, 3, 1, 1, 2};
      CrossEntropy args = whole.args();
      args.chunk_ends = ends, args.soft_cap = soft_cap;
      args.row_losses = view_of(losses), args.row_factors = view_of(factors);
      const Loss expected = cross_entropy(kernels(), args);
      HostTensor parts[2], maxima[2], sums[2];
      for (int p = 0; p < 2; ++p) {
        parts[p] = part_of(whole.logits, kRows, kColumns, kFirst[p], kCount[p]);
        maxima[p] = HostTensor::poisoned(wide, {kRows});
        kernels().row_maxima({.logits = parts[p].view(), .maximum = maxima[p].view()});
        for (int64_t row = 0; row < kRows; ++row) {
          double largest = -INFINITY;
          for (int64_t v = 0; v < kCount[p]; ++v) largest = std::max(largest, parts[p].at(row * kCount[p] + v));
          EXPECT_EQ(maxima[p].at(row), largest);
        }
      }
      for (int64_t row = 0; row < kRows; ++row) maxima[0].set(row, std::max(maxima[0].at(row), maxima[1].at(row)));
      const auto sum = [&](ConstTensorView logits, int64_t first, const std::vector<int64_t>& chunk_ends) {
        HostTensor result = HostTensor::poisoned(wide, {2, kRows});
        kernels().row_sums({.logits = logits,
                            .targets = view_of(whole.targets),
                            .maximum = maxima[0].view(),
                            .sums = result.view(),
                            .columns = {first, kColumns},
                            .chunk_ends = chunk_ends});
        return result;
      };
      for (int p = 0; p < 2; ++p) sums[p] = sum(parts[p].view(), kFirst[p], part_ends[p]);
      kernels().add(sums[1].view(), sums[0].view());
      EXPECT_EQ(sum(whole.logits.view(), 0, ends), sums[0]) << name_of(dtype);
      for (int p = 0; p < 2; ++p) {
        HostTensor dlogits = HostTensor::poisoned(dtype, {kRows, kCount[p]});
        Values<double> row_losses(kRows);
        const Loss result = loss_of(CrossEntropyOfPart{.logits = parts[p].view(),
                                                       .targets = view_of(whole.targets),
                                                       .maximum = maxima[0].view(),
                                                       .sums = sums[0].view(),
                                                       .dlogits = dlogits.view(),
                                                       .columns = {kFirst[p], kColumns},
                                                       .gradient_scale = whole.scale,
                                                       .row_losses = view_of(row_losses),
                                                       .row_factors = view_of(factors),
                                                       .soft_cap = soft_cap},
                                    [&](const CrossEntropyOfPart& part) { kernels().cross_entropy_of_part(part); });
        EXPECT_EQ(result.loss_sum, expected.loss_sum);
        EXPECT_EQ(result.tokens, expected.tokens);
        EXPECT_EQ(row_losses, losses);
        EXPECT_EQ(dlogits, part_of(whole.dlogits, kRows, kColumns, kFirst[p], kCount[p])) << name_of(dtype);
      }
    }
}

}  // namespace
}  // namespace trivet::kernels::cross_entropy_test
