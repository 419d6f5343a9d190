#include <cmath>
#include <limits>

#include "tests/kernels/every_device.h"
#include "tests/kernels/matmul_problem.h"

namespace trivet::kernels::matmul_test {
namespace {

void expect_matches_double_reference(const KernelsOnEveryDevice& test, const MatmulCase& c) {
  MatmulProblem problem(c);
  const HostTensor before = problem.out;
  test.kernels().matmul(problem.args());
  expect_near_double_reference(problem, before, problem.out, !test.on_cpu());
}

TEST_P(KernelsOnEveryDevice, MatmulMatchesDoubleReference) {
  const int64_t shapes[][3] = {{1, 1, 1},    {1, 7, 5},    {5, 1, 9},    {3, 5, 1},     {16, 24, 8},  {17, 33, 19},
                               {32, 48, 16}, {17, 33, 65}, {64, 48, 32}, {31, 515, 40}, {259, 30, 70}};
  for (const auto& [m, n, k] : shapes)
    for (const MatmulCase& c : all_kinds_of_matmul(m, n, k))
      if (!takes_too_long(m * n * k)) expect_matches_double_reference(*this, c);
}

TEST_P(KernelsOnEveryDevice, MatmulMatchesDoubleReferenceOnLongSums) {
  for (const MatmulCase& c : all_kinds_of_matmul(9, takes_too_long(9 * 20 * 1500) ? 1 : 20, 1500))
    expect_matches_double_reference(*this, c);
}

TEST_P(KernelsOnEveryDevice, MatmulOfAnEmptySumIsZeroPlusBiasAndAnEmptyOutputIsNothing) {
  for (const MatmulCase& c : all_kinds_of_matmul(3, 5, 0)) expect_matches_double_reference(*this, c);
  for (const MatmulCase& c : all_kinds_of_matmul(0, 5, 4)) expect_matches_double_reference(*this, c);
  for (const MatmulCase& c : all_kinds_of_matmul(3, 0, 4)) expect_matches_double_reference(*this, c);
}

TEST_P(KernelsOnEveryDevice, MatmulPassesOnWhatIsNotANumber) {
  for (const MatmulCase& c : all_kinds_of_matmul(20, 40, 30)) {
    if (takes_too_long(20 * 40 * 30) && c.accumulate) continue;
    MatmulProblem problem(c);
    problem.a.set(c.transpose_a ? 3 * c.m + 2 : 2 * c.k + 3, std::numeric_limits<double>::quiet_NaN());
    kernels().matmul(problem.args());
    for (int64_t j = 0; j < c.n; ++j) EXPECT_TRUE(std::isnan(problem.out.at(2 * c.n + j))) << describe(c);
  }
}

TEST_P(KernelsOnEveryDevice, MatmulRefusesShapesThatDoNotFit) {
  HostTensor a = HostTensor::random(DType::Float32, {3, 4}, 1), b = HostTensor::random(DType::Float32, {5, 6}, 2);
  HostTensor out = HostTensor::poisoned(DType::Float32, {3, 6});
  EXPECT_THROW(kernels().matmul({.a = a.view(), .b = b.view(), .out = out.view()}), std::logic_error);
}

HostTensor columns_of(const HostTensor& whole, int64_t begin, int64_t end) {
  const int64_t rows = whole.view().shape.rows(), cols = whole.view().shape.cols();
  HostTensor part(whole.view().dtype, {rows, end - begin});
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t col = begin; col < end; ++col) part.set(row * (end - begin) + col - begin, whole.at(row * cols + col));
  return part;
}

// The types of products whose bits may not depend on cuts.
constexpr DType kCutTypes[] = {DType::Float32, DType::BFloat16, DType::Float16};

struct Cut {
  int64_t m, n, k, at;
};
// With odd sizes, the second piece begins at an address that is not aligned.
std::vector<Cut> cuts(const KernelsOnEveryDevice& test) {
  std::vector<Cut> all{{6, 29, 37, 13}, {29, 10, 40, 13}, {40, 192, 768, 96}};
  std::erase_if(all, [&](const Cut& c) { return test.takes_too_long(c.m * c.n * c.k); });
  return all;
}

TEST_P(KernelsOnEveryDevice, MatmulOfAPieceOfColumnsHasTheBitsOfTheWhole) {
  for (const DType dtype : kCutTypes)
    for (const auto& [m, n, k, at] : cuts(*this))
      for (const bool transpose_b : {false, true}) {
        const int64_t cut = std::min(at, n / 2);
        const HostTensor a = HostTensor::random(dtype, {m, k}, 1), bias = HostTensor::random(dtype, {1, n}, 3);
        const HostTensor b = HostTensor::random(dtype, transpose_b ? Shape{n, k} : Shape{k, n}, 2);
        const auto product = [&, m = m](const HostTensor& right, const HostTensor& addend, const ProductCuts& of) {
          HostTensor out = HostTensor::poisoned(dtype, {m, of.col_ends.back()});
          kernels().matmul({.a = a.view(),
                            .b = right.view(),
                            .out = out.view(),
                            .transpose_b = transpose_b,
                            .bias = addend.view().reshaped({of.col_ends.back()}),
                            .cuts = &of});
          return out;
        };
        const HostTensor whole = product(b, bias, {.col_ends = {cut, n}});
        for (const auto& [begin, end] : {std::pair(int64_t{0}, cut), std::pair(cut, n)}) {
          HostTensor part = transpose_b ? HostTensor(dtype, {end - begin, k}) : columns_of(b, begin, end);
          for (int64_t e = 0; transpose_b && e < part.elements(); ++e) part.set(e, b.at(begin * k + e));
          EXPECT_EQ(product(part, columns_of(bias, begin, end), {.col_ends = {end - begin}}), columns_of(whole, begin, end))
              << name_of(dtype) << (transpose_b ? " transposed" : "") << " from " << begin;
        }
      }
}

TEST_P(KernelsOnEveryDevice, MatmulOfAPieceOfRowsHasTheBitsOfTheWhole) {
  for (const DType dtype : kCutTypes)
    for (const auto& [m, n, k, at] : cuts(*this)) {
      const int64_t cut = std::min(at, m / 2);
      const HostTensor a = HostTensor::random(dtype, {k, m}, 1), b = HostTensor::random(dtype, {k, n}, 2);
      const auto product = [&, n = n](const HostTensor& left, const ProductCuts& of) {
        HostTensor out = HostTensor::poisoned(DType::Float32, {of.row_ends.back(), n});
        kernels().matmul({.a = left.view(), .b = b.view(), .out = out.view(), .transpose_a = true, .cuts = &of});
        return out;
      };
      const HostTensor whole = product(a, {.row_ends = {cut, m}});
      for (const auto& [begin, end] : {std::pair(int64_t{0}, cut), std::pair(cut, m)}) {
        const HostTensor alone = product(columns_of(a, begin, end), {.row_ends = {end - begin}});
        for (int64_t e = 0; e < alone.elements(); ++e) ASSERT_EQ(alone.at(e), whole.at(begin * n + e)) << begin << " " << e;
      }
    }
}

TEST_P(KernelsOnEveryDevice, MatmulInLeavesAddsUpOverTwoPartsToTheSameBits) {
  const int64_t m = 7, n = 9;
  for (const DType dtype : kCutTypes)
    for (const int64_t unit : {int64_t{1}, int64_t{40}}) {
      const int64_t k = 96 * unit, cut = 47 * unit;
      if (takes_too_long(m * n * k)) continue;
      const HostTensor a = HostTensor::random(dtype, {m, k}, 1), b = HostTensor::random(dtype, {n, k}, 2);
      const ProductCuts whole{.leaves = {{{0, 40 * unit}, {40 * unit, cut}}, {}, {{cut, 70 * unit}}, {{70 * unit, k}}}};
      const ProductCuts halves[] = {{.leaves = {{{0, 40 * unit}, {40 * unit, cut}}, {}}},
                                    {.leaves = {{{0, 23 * unit}}, {{23 * unit, 49 * unit}}}}};
      const auto product = [&](const HostTensor& left, const HostTensor& right, const ProductCuts& of) {
        HostTensor out = HostTensor::poisoned(DType::Float32, {m, n});
        kernels().matmul({.a = left.view(), .b = right.view(), .out = out.view(), .transpose_b = true, .cuts = &of});
        return out;
      };
      const HostTensor first = product(columns_of(a, 0, cut), columns_of(b, 0, cut), halves[0]);
      HostTensor sum = product(columns_of(a, cut, k), columns_of(b, cut, k), halves[1]);
      kernels().add(first.view(), sum.view());
      EXPECT_EQ(sum, product(a, b, whole)) << name_of(dtype);
    }
}

// Leaves are added as ((0 + 1) + (2 + 3)), and the ranges of a leaf in their order. Then what is there already, or the bias, is
// added, and the sum is rounded once.
TEST_P(KernelsOnEveryDevice, MatmulAddsLeavesInATreeAndRoundsOnce) {
  constexpr double kTerms[] = {1, 0x1p-24, 0x1p-24, 0x1p-24};
  for (const DType dtype : kCutTypes) {
    const HostTensor a = HostTensor::filled(dtype, {1, 4}, 1);
    HostTensor b(dtype, {4, 1});
    for (int64_t p = 0; p < 4; ++p) b.set(p, kTerms[p]);
    const ProductCuts leaves{.leaves = {{{0, 1}}, {{1, 2}}, {{2, 3}}, {{3, 4}}}},
        ranges{.leaves = {{{0, 1}, {1, 2}, {2, 3}, {3, 4}}}}, nothing{.leaves = {{}, {}}};
    const auto product = [&](const ProductCuts& of, double before) {
      HostTensor out = HostTensor::filled(DType::Float32, {1, 1}, before);
      kernels().matmul({.a = a.view(), .b = b.view(), .out = out.view(), .accumulate = !std::isnan(before), .cuts = &of});
      return out.at(0);
    };
    EXPECT_EQ(product(leaves, NAN), 1 + 0x1p-23);
    EXPECT_EQ(product(ranges, NAN), 1);
    EXPECT_EQ(product(nothing, NAN), 0);
    EXPECT_EQ(product(nothing, 3), 3);
    EXPECT_EQ(product(leaves, 3), 4);
  }
}

}  // namespace
}  // namespace trivet::kernels::matmul_test
