// Times between measured sizes are exact where kernels follow the law that the table assumes, and never far from their
// neighbours.
#include "autotune/kernel_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace trivet::autotune {
namespace {

kernels::KernelCall product(int64_t m, int64_t n, int64_t k, std::string_view variant = "nt", DType dtype = DType::Float32) {
  const auto cube = 2.0 * static_cast<double>(m * n * k);
  return {.kernel = "matmul",
          .variant = variant,
          .dtype = dtype,
          .sizes = {m, n, k},
          .bound = kernels::Bound::Products,
          .flops = cube,
          .bytes = 8};
}

// Matrix products at 10 GFLOP/s that get faster by the factor `growth` with every doubling of 1 + M.
std::vector<KernelSample> products(double growth) {
  std::vector<KernelSample> samples;
  for (const int64_t m : {31, 63, 127, 255, 511})  // log2(1 + m) is an integer
    for (const int64_t n : {63, 127, 255})
      for (const int64_t k : {63, 127, 255}) {
        const auto call = product(m, n, k);
        samples.push_back(sample_of(call, call.flops / 1e10 * std::pow(growth, -std::log2(1.0 + static_cast<double>(m)))));
      }
  return samples;
}

TEST(KernelTable, MeasuredSizesAreWhatTheyWereMeasured) {
  const KernelTable table(products(1.1));
  for (const KernelSample& s : products(1.1)) {
    const auto call = product(s.sizes[0], s.sizes[1], s.sizes[2]);
    EXPECT_TRUE(table.measured(call));
    EXPECT_NEAR(table.seconds(call) / s.seconds, 1, 1e-12);  // rounding of log and exp
  }
}

TEST(KernelTable, ConstantRatesAreKeptEverywhere) {
  const KernelTable table(products(1));
  for (const int64_t m : {1, 40, 100, 300, 5000}) {
    const auto call = product(m, 100, 90);
    EXPECT_NEAR(table.seconds(call) / (call.flops / 1e10), 1, 1e-9) << m;
  }
}

// The regression's ridge term kRidge pulls slopes towards 0. Less than a twentieth of the change to the next point is lost to
// it.
TEST(KernelTable, BetweenSizesRatesAreOnTheLineThroughThem) {
  const KernelTable table(products(1.2));
  const auto call = product(90, 90, 90);
  const double expected = call.flops / 1e10 * std::pow(1.2, -std::log2(91.0));
  EXPECT_NEAR(table.seconds(call) / expected, 1, 0.02);
}

TEST(KernelTable, BeyondTheMeasuredTheRateStaysNearThatOfTheNearest) {
  const KernelTable table(products(1.5));
  const auto call = product(1 << 20, 255, 255), edge = product(511, 255, 255);
  const double rate = call.flops / table.seconds(call), edge_rate = edge.flops / table.seconds(edge);
  EXPECT_LT(rate / edge_rate, 1.4);
  EXPECT_GT(rate / edge_rate, 0.5);
}

TEST(KernelTable, SeveralOfTheSameSizesAreTheirMean) {
  const auto call = product(64, 64, 64);
  const KernelTable table({sample_of(call, 1e-3), sample_of(call, 3e-3)});
  EXPECT_NEAR(table.seconds(call), 2e-3, 1e-12);
}

TEST(KernelTable, WhatWasNotMeasuredIsTakenFromTheNearestKindAndIsSaidSo) {
  const auto measured = product(64, 64, 64);
  std::vector<KernelSample> samples{sample_of(measured, 1e-3)};
  const kernels::KernelCall copy{.kernel = "copy", .sizes = {1 << 20}, .bound = kernels::Bound::Memory, .bytes = 1 << 23};
  samples.push_back(sample_of(copy, (1 << 23) / 1e9));
  const KernelTable table(samples);
  for (const auto& call : {product(64, 64, 64, "tn+"), product(64, 64, 64, "nt", DType::BFloat16)}) {
    EXPECT_FALSE(table.measured(call));
    EXPECT_NEAR(table.seconds(call), 1e-3, 1e-12);
  }
  // A kernel of an unknown kind is assumed to move its bytes as fast as the others do.
  const kernels::KernelCall other{.kernel = "swiglu", .sizes = {64, 64}, .bound = kernels::Bound::Memory, .bytes = 5e5};
  EXPECT_FALSE(table.measured(other));
  EXPECT_NEAR(table.seconds(other), 1e-3 + 5e5 / 1e9, 1e-12);
}

// Adding one element takes as long as the call; adding a million does not take as long as a million calls.
TEST(KernelTable, SmallCallsSayNothingOfLargeOnesOfAnotherType) {
  const kernels::KernelCall one{
      .kernel = "add", .dtype = DType::Int64, .sizes = {1}, .bound = kernels::Bound::Memory, .bytes = 24};
  const kernels::KernelCall copy{.kernel = "copy", .sizes = {1 << 20}, .bound = kernels::Bound::Memory, .bytes = 1 << 23};
  const KernelTable table({sample_of(one, 2e-6), sample_of(copy, (1 << 23) / 1e9)});
  const kernels::KernelCall many{.kernel = "add", .sizes = {1 << 20}, .bound = kernels::Bound::Memory, .bytes = 12 << 20};
  EXPECT_NEAR(table.seconds(many), 2e-6 + (12 << 20) / 1e9, 1e-9);
}

TEST(KernelTable, AKernelThatDoesNotSayWhatLimitsItsSpeedIsAnError) {
  const kernels::KernelCall unstated{.kernel = "new", .sizes = {64, 64}, .flops = 1, .bytes = 5e5};
  EXPECT_THAT([&] { KernelTable({sample_of(product(64, 64, 64), 1e-3)}).seconds(unstated); },
              ::testing::ThrowsMessage<std::logic_error>("kernel new does not say what limits its speed (KernelCall::bound)"));
  EXPECT_THROW(KernelTable({sample_of(unstated, 1e-3)}), std::logic_error);
}

}  // namespace
}  // namespace trivet::autotune
