#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "kernels/cpu/math.h"
#include "tests/kernels/host_tensor.h"

namespace trivet::kernels::matmul_test {
namespace {

struct Case {
  int64_t m, n, k;
  DType dtype, out;
  bool transpose_a, transpose_b, accumulate, bias;
};

std::string describe(const Case& c) {
  return std::to_string(c.m) + "x" + std::to_string(c.n) + "x" + std::to_string(c.k) + " " + std::string(name_of(c.dtype)) +
         "->" + std::string(name_of(c.out)) + (c.transpose_a ? " ta" : "") + (c.transpose_b ? " tb" : "") +
         (c.accumulate ? " acc" : "") + (c.bias ? " bias" : "");
}

struct Problem {
  HostTensor a, b, bias, out;
  Case c;

  explicit Problem(const Case& chosen, uint64_t seed = 1)
      : a(HostTensor::random(chosen.dtype, chosen.transpose_a ? Shape{chosen.k, chosen.m} : Shape{chosen.m, chosen.k}, seed)),
        b(HostTensor::random(chosen.dtype, chosen.transpose_b ? Shape{chosen.n, chosen.k} : Shape{chosen.k, chosen.n},
                             seed + 1)),
        bias(HostTensor::random(chosen.dtype, Shape{chosen.n}, seed + 2)),
        out(chosen.accumulate ? HostTensor::random(chosen.out, {chosen.m, chosen.n}, seed + 3)
                              : HostTensor::poisoned(chosen.out, {chosen.m, chosen.n})),
        c(chosen) {}

  Matmul args() {
    Matmul args{.a = a.view(),
                .b = b.view(),
                .out = out.view(),
                .transpose_a = c.transpose_a,
                .transpose_b = c.transpose_b,
                .accumulate = c.accumulate,
                .bias = {}};
    if (c.bias) args.bias = bias.view();
    return args;
  }
  double left(int64_t i, int64_t p) const { return a.at(c.transpose_a ? p * c.m + i : i * c.k + p); }
  double right(int64_t p, int64_t j) const { return b.at(c.transpose_b ? j * c.k + p : p * c.n + j); }
};

// A sum of K products in a format of precision u, in any order, is off by at most K u times the sum of magnitudes (Higham 2002,
// section 3.1); rounding the result adds half a unit of the output's type, and rounding the addend another.
void expect_matches_double_reference(const Case& c) {
  Problem problem(c);
  const HostTensor before = problem.out;
  cpu::compute(problem.args(), 2);
  const double u = c.dtype == DType::Float64 ? 0x1p-53 : 0x1p-24;
  for (int64_t i = 0; i < c.m; ++i)
    for (int64_t j = 0; j < c.n; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t p = 0; p < c.k; ++p) {
        sum += problem.left(i, p) * problem.right(p, j);
        magnitude += std::abs(problem.left(i, p) * problem.right(p, j));
      }
      const double addend = c.accumulate ? before.at(i * c.n + j) : c.bias ? problem.bias.at(j) : 0.0;
      const double expected = sum + addend;
      const double tolerance =
          static_cast<double>(c.k + 2) * u * (magnitude + std::abs(addend)) + half_unit(c.out) * (std::abs(expected) + 1e-30);
      ASSERT_NEAR(problem.out.at(i * c.n + j), expected, tolerance) << describe(c) << " at " << i << ", " << j;
    }
}

std::vector<Case> all_kinds(int64_t m, int64_t n, int64_t k) {
  std::vector<Case> cases;
  const std::pair<DType, DType> types[] = {{DType::Float32, DType::Float32},  {DType::BFloat16, DType::BFloat16},
                                           {DType::BFloat16, DType::Float32}, {DType::Float16, DType::Float16},
                                           {DType::Float16, DType::Float32},  {DType::Float64, DType::Float64}};
  for (const auto& [dtype, out] : types)
    for (int transposes = 0; transposes < 4; ++transposes)
      for (int epilogue = 0; epilogue < 3; ++epilogue)
        cases.push_back({m, n, k, dtype, out, (transposes & 1) != 0, (transposes & 2) != 0, epilogue == 1, epilogue == 2});
  return cases;
}

TEST(CpuMatmul, MatchesDoubleReference) {
  const int64_t shapes[][3] = {{1, 1, 1},    {1, 7, 5},    {5, 1, 9},     {3, 5, 1},
                               {17, 33, 65}, {64, 48, 32}, {31, 515, 40}, {259, 30, 70}};
  for (const auto& [m, n, k] : shapes)
    for (const Case& c : all_kinds(m, n, k)) expect_matches_double_reference(c);
}

TEST(CpuMatmul, MatchesDoubleReferenceOnLongSums) {
  for (const Case& c : all_kinds(9, 20, 1500)) expect_matches_double_reference(c);
}

TEST(CpuMatmul, EmptySumIsZeroPlusBiasAndEmptyOutputIsNothing) {
  for (const Case& c : all_kinds(3, 5, 0)) expect_matches_double_reference(c);
  for (const Case& c : all_kinds(0, 5, 4)) expect_matches_double_reference(c);
  for (const Case& c : all_kinds(3, 0, 4)) expect_matches_double_reference(c);
}

TEST(CpuMatmul, BitsDoNotDependOnTheNumberOfThreads) {
  const int64_t shapes[][3] = {{1, 1, 1}, {8, 8, 4096}, {1, 600, 70}, {256, 64, 64}, {130, 300, 70}, {200, 130, 300}};
  for (const auto& [m, n, k] : shapes)
    for (const Case& c : all_kinds(m, n, k)) {
      if (c.dtype == DType::Float64 && m * n * k > 10'000'000) continue;
      Problem one(c);
      cpu::compute(one.args(), 1);
      for (int threads : {2, 4}) {
        Problem other(c);
        cpu::compute(other.args(), threads);
        ASSERT_TRUE(one.out == other.out) << describe(c) << " with " << threads << " threads";
      }
    }
}

TEST(CpuMatmul, RanksAsThreadsMayMultiplyAtTheSameTime) {
  const std::vector<Case> cases = all_kinds(130, 190, 70);
  std::vector<HostTensor> expected;
  for (const Case& c : cases) {
    Problem problem(c);
    cpu::compute(problem.args(), 1);
    expected.push_back(problem.out);
  }
  std::vector<std::thread> ranks;
  std::vector<int> wrong(3, 0);
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      for (size_t i = 0; i < cases.size(); ++i) {
        Problem problem(cases[i]);
        cpu::compute(problem.args(), 1 + rank);
        if (!(problem.out == expected[i])) ++wrong[rank];
      }
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(wrong, std::vector<int>(3, 0));
}

TEST(CpuMatmul, NotANumberReachesTheOutput) {
  for (const Case& c : all_kinds(20, 40, 30)) {
    Problem problem(c);
    problem.a.set(c.transpose_a ? 3 * c.m + 2 : 2 * c.k + 3, std::numeric_limits<double>::quiet_NaN());
    cpu::compute(problem.args(), 2);
    for (int64_t j = 0; j < c.n; ++j) EXPECT_TRUE(std::isnan(problem.out.at(2 * c.n + j))) << describe(c);
  }
}

// The results equal gelu and gelu_backward of the result of the product alone.
TEST(CpuMatmul, MakesGeluOfItsResultAndGoesBackThroughIt) {
  const ProductCuts cuts{.col_ends = {40, 70}};
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16, DType::Float64})
    for (const ProductCuts* cut : {static_cast<const ProductCuts*>(nullptr), &cuts})
      for (const bool bias : {false, true}) {
        Problem problem({65, 70, 33, dtype, dtype, false, true, false, bias});
        Matmul args = problem.args();
        args.cuts = cut;
        cpu::compute(args, 2);
        const HostTensor alone = problem.out, before = HostTensor::random(dtype, {65, 70}, 9);
        HostTensor activated = HostTensor::poisoned(dtype, {65, 70}), expected = activated;
        cpu::compute(Gelu{.x = alone.view(), .y = expected.view()}, 1);
        args.activated = activated.view();
        cpu::compute(args, 2);
        EXPECT_TRUE(problem.out == alone && activated == expected) << name_of(dtype);
        if (bias) continue;
        cpu::compute(GeluBackward{.dy = alone.view(), .x = before.view(), .dx = expected.view()}, 1);
        args.activated = {};
        args.before_gelu = before.view();
        cpu::compute(args, 2);
        EXPECT_TRUE(problem.out == expected) << name_of(dtype);
      }
}

TEST(CpuMatmul, ShapesThatDoNotFitAreRefused) {
  HostTensor a = HostTensor::random(DType::Float32, {3, 4}, 1), b = HostTensor::random(DType::Float32, {5, 6}, 2);
  HostTensor out = HostTensor::poisoned(DType::Float32, {3, 6});
  EXPECT_THROW(cpu::compute(Matmul{.a = a.view(), .b = b.view(), .out = out.view(), .bias = {}}, 1), std::logic_error);
}

}  // namespace
}  // namespace trivet::kernels::matmul_test
