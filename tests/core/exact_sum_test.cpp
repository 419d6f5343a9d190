#include "core/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace trivet {
namespace {

double exact(const std::vector<double>& terms) {
  ExactSum sum;
  for (double term : terms) sum.add(term);
  return sum.value();
}

TEST(ExactSum, OfOneTermIsTheTerm) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const double term = std::ldexp(std::uniform_real_distribution<>(-1, 1)(random), static_cast<int>(random() % 200) - 130);
    EXPECT_EQ(exact({term}), term);
  }
}

TEST(ExactSum, CancelsWithoutLoss) {
  EXPECT_EQ(exact({1e20, 1.0, -1e20}), 1.0);
  EXPECT_EQ(exact({0x1p90, 0x1p-100, -0x1p90}), 0x1p-100);
  EXPECT_EQ(exact({1.0, -1.0}), 0.0);
  EXPECT_EQ(exact({}), 0.0);
  EXPECT_EQ(exact({-1.0, -2.5}), -3.5);
}

TEST(ExactSum, RoundsOnceToNearestEven) {
  EXPECT_EQ(exact({1.0, 0x1p-53}), 1.0);
  EXPECT_EQ(exact({1.0, 0x1p-53, 0x1p-140}), 1.0 + 0x1p-52);
  EXPECT_EQ(exact({1.0 + 0x1p-52, 0x1p-53}), 1.0 + 0x1p-51);
  EXPECT_EQ(exact({-1.0, -0x1p-53, -0x1p-140}), -1.0 - 0x1p-52);
  // 2^32 has a limb to itself; the term that breaks the tie is in the third limb below it.
  EXPECT_EQ(exact({0x1p32, 0x1p-21}), 0x1p32);
  EXPECT_EQ(exact({0x1p32, 0x1p-21, 0x1p-40}), 0x1p32 + 0x1p-20);
}

TEST(ExactSum, DoesNotDependOnOrderOrGrouping) {
  std::mt19937_64 random(2);
  std::vector<double> terms(1000);
  for (auto& term : terms) term = std::ldexp(std::normal_distribution<>()(random), static_cast<int>(random() % 60) - 30);
  const double forward = exact(terms);
  std::shuffle(terms.begin(), terms.end(), random);
  EXPECT_EQ(exact(terms), forward);
  ExactSum left, right;
  for (size_t i = 0; i < terms.size(); ++i) (i % 3 ? left : right).add(terms[i]);
  left.add(right);
  EXPECT_EQ(left.value(), forward);
}

TEST(ExactSum, SaysWhenATermIsNotFinite) {
  ExactSum sum;
  sum.add(1.0);
  EXPECT_TRUE(sum.finite());
  sum.add(INFINITY);
  EXPECT_FALSE(sum.finite());
  EXPECT_TRUE(std::isnan(sum.value()));
}

}  // namespace
}  // namespace trivet
