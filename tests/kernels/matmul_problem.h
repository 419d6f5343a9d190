// Products of matrices of all types, transposed or not, with and without a bias.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/products.h"
#include "tests/kernels/host_tensor.h"

namespace trivet::kernels {

struct MatmulCase {
  int64_t m, n, k;
  DType dtype, out;
  bool transpose_a, transpose_b, accumulate, bias;
};

inline std::string describe(const MatmulCase& c) {
  return std::to_string(c.m) + "x" + std::to_string(c.n) + "x" + std::to_string(c.k) + " " + std::string(name_of(c.dtype)) +
         "->" + std::string(name_of(c.out)) + (c.transpose_a ? " ta" : "") + (c.transpose_b ? " tb" : "") +
         (c.accumulate ? " acc" : "") + (c.bias ? " bias" : "");
}

struct MatmulProblem {
  HostTensor a, b, bias, out;
  MatmulCase c;

  explicit MatmulProblem(const MatmulCase& chosen, uint64_t seed = 1)
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
// section 3.1); rounding the result adds half a unit of the output's type, and rounding the addend another. Some of cuBLASLt's
// kernels (seen on an H200, products of fewer than 64 rows) also round the product to the output's type before they add `out`
// or the bias.
inline void expect_near_double_reference(const MatmulProblem& problem, const HostTensor& before, const HostTensor& got,
                                         bool may_round_product) {
  const MatmulCase& c = problem.c;
  const double u = c.dtype == DType::Float64 ? 0x1p-53 : 0x1p-24;
  for (int64_t i = 0; i < c.m; ++i)
    for (int64_t j = 0; j < c.n; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t p = 0; p < c.k; ++p) {
        const double product = problem.left(i, p) * problem.right(p, j);
        sum += product;
        magnitude += std::abs(product);
      }
      const double addend = c.accumulate ? before.at(i * c.n + j) : c.bias ? problem.bias.at(j) : 0.0;
      const double expected = sum + addend, rounded_before = may_round_product && addend != 0 ? std::abs(sum) : 0;
      const double tolerance = static_cast<double>(c.k + 2) * u * (magnitude + std::abs(addend)) +
                               half_unit(c.out) * (std::abs(expected) + rounded_before + 1e-30);
      ASSERT_NEAR(got.at(i * c.n + j), expected, tolerance) << describe(c) << " at " << i << ", " << j;
    }
}

inline std::vector<MatmulCase> all_kinds_of_matmul(int64_t m, int64_t n, int64_t k) {
  std::vector<MatmulCase> cases;
  const std::pair<DType, DType> types[] = {{DType::Float32, DType::Float32},  {DType::BFloat16, DType::BFloat16},
                                           {DType::BFloat16, DType::Float32}, {DType::Float16, DType::Float16},
                                           {DType::Float16, DType::Float32},  {DType::Float64, DType::Float64}};
  for (const auto& [dtype, out] : types)
    for (int transposes = 0; transposes < 4; ++transposes)
      for (int epilogue = 0; epilogue < 3; ++epilogue)
        cases.push_back({m, n, k, dtype, out, (transposes & 1) != 0, (transposes & 2) != 0, epilogue == 1, epilogue == 2});
  return cases;
}

}  // namespace trivet::kernels
