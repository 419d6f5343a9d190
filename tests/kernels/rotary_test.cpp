#include <cmath>

#include "tests/kernels/every_way.h"

namespace trivet::kernels::rotary_test {
namespace {

struct Case {
  DType dtype;
  int64_t batch, sequence, heads, key_value_heads, head_size;
  int64_t pairs = head_size / 2;
  double magnitude = 1;
  Shape shape() const { return {batch, sequence, (heads + 2 * key_value_heads) * head_size}; }
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const DType dtype : kFloatTypes)
    for (const auto& [b, s, n, g, d] : std::vector<std::array<int64_t, 5>>{
             {0, 3, 2, 1, 4}, {1, 1, 1, 1, 2}, {2, 5, 4, 2, 6}, {2, 70, 4, 2, 64}, {1, 33, 3, 3, 34}})
      cases.push_back({dtype, b, s, n, g, d});
  return cases;
}

// From 1 radian per token down to nearly 1 / base.
std::vector<double> falling_frequencies(int64_t pairs, double base = 10000) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < pairs; ++i)
    frequencies.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(pairs)));
  return frequencies;
}

HostTensor rotated(const Case& c, const HostTensor& qkv, bool backward, const std::vector<double>& frequencies) {
  return same_bits_every_way([&](Kernels& kernels) {
    HostTensor result = qkv;
    kernels.rotary({.qkv = result.view(),
                    .heads = c.heads,
                    .key_value_heads = c.key_value_heads,
                    .frequencies = frequencies,
                    .backward = backward,
                    .magnitude = c.magnitude});
    return std::vector{result};
  })[0];
}

void expect_rotated(const Case& c, const HostTensor& qkv, const std::vector<double>& frequencies) {
  const HostTensor out = rotated(c, qkv, false, frequencies);
  const int64_t width = c.shape().cols();
  for (int64_t e = 0; e < qkv.elements(); ++e) {
    const int64_t position = e / width % c.sequence, head = e % width / c.head_size, i = e % c.head_size;
    if (head >= c.heads + c.key_value_heads || i >= 2 * c.pairs) {
      ASSERT_EQ(out.at(e), qkv.at(e));
      continue;
    }
    const double angle = static_cast<double>(position) * frequencies[i % c.pairs];
    const double partner = qkv.at(i < c.pairs ? e + c.pairs : e - c.pairs) * (i < c.pairs ? -1.0 : 1.0);
    const double expected = c.magnitude * (qkv.at(e) * std::cos(angle) + partner * std::sin(angle));
    ASSERT_NEAR(out.at(e), expected,
                4 * sum_unit(c.dtype) * 2 * c.magnitude + half_unit(c.dtype) * (std::abs(expected) + 1e-3));
  }
}

TEST(Rotary, RotatesQueriesAndKeysAndLeavesValuesAlone) {
  for (const Case& c : all_cases()) expect_rotated(c, HostTensor::random(c.dtype, c.shape(), 1), falling_frequencies(c.pairs));
}

// The factor is 1 + growth ln(1 + floor(position / step)), for queries alone, also for elements that are not rotated; given
// positions count as places do.
TEST(Rotary, MultipliesQueriesByMoreAtLaterPositions) {
  constexpr int64_t kStep = 2, kFirst = 3, kHeads = 2, kWidth = (kHeads + 2) * 6;
  const std::vector<double> frequencies = falling_frequencies(2);
  for (const DType dtype : kFloatTypes)
    for (const bool backward : {false, true}) {
      const HostTensor qkv = HostTensor::random(dtype, {2, 5, kWidth}, 3);
      const std::vector<int32_t> given{3, 4, 5, 6, 7, 3, 4, 5, 6, 7};
      const auto run = [&](double growth, bool gives) {
        return same_bits_every_way([&](Kernels& kernels) {
          HostTensor result = qkv;
          kernels.rotary({.qkv = result.view(),
                          .heads = kHeads,
                          .key_value_heads = 1,
                          .frequencies = frequencies,
                          .backward = backward,
                          .positions = gives ? ConstTensorView{given.data(), DType::Int32, {2, 5}} : ConstTensorView{},
                          .first = gives ? 0 : kFirst,
                          .query_growth = growth,
                          .query_step = kStep});
          return std::vector{result};
        })[0];
      };
      const HostTensor plain = run(0, false), scaled = run(0.4, false), by_positions = run(0.4, true);
      for (int64_t e = 0; e < qkv.elements(); ++e) {
        const double factor = 1 + 0.4 * std::log(1.0 + static_cast<double>((kFirst + e / kWidth % 5) / kStep));
        const double expected = e % kWidth < kHeads * 6 ? plain.at(e) * factor : plain.at(e);
        ASSERT_NEAR(scaled.at(e), expected, (sum_unit(dtype) + half_unit(dtype)) * 2 * std::abs(expected)) << e;
        ASSERT_EQ(by_positions.at(e), scaled.at(e)) << e;
      }
    }
}

TEST(Rotary, RotatesTheFirstElementsOfEachHeadOnly) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t pairs : {1, 5, 12}) {
      const Case c{
          .dtype = dtype, .batch = 2, .sequence = 9, .heads = 3, .key_value_heads = 1, .head_size = 24, .pairs = pairs};
      expect_rotated(c, HostTensor::random(dtype, c.shape(), 1), falling_frequencies(pairs));
    }
}

TEST(Rotary, MultipliesWhatItRotatesByTheMagnitude) {
  for (const DType dtype : kFloatTypes) {
    const Case c{.dtype = dtype,
                 .batch = 1,
                 .sequence = 40,
                 .heads = 2,
                 .key_value_heads = 1,
                 .head_size = 48,
                 .pairs = 16,
                 .magnitude = 1.375};
    expect_rotated(c, HostTensor::random(dtype, c.shape(), 1), falling_frequencies(c.pairs));
  }
}

// Two models in one process may have different frequencies, head sizes, lengths and magnitudes: what a thread keeps for one
// must not serve the other.
TEST(Rotary, OneThreadServesModelsOfDifferentFrequencies) {
  for (const DType dtype : kFloatTypes) {
    const Case c{dtype, 1, 9, 2, 1, 8}, larger_heads{dtype, 1, 9, 2, 1, 12}, longer{dtype, 1, 20, 2, 1, 8};
    const auto qkv = [](const Case& which) { return HostTensor::random(which.dtype, which.shape(), 1); };
    for (const double base : {10000.0, 500.0, 10000.0}) expect_rotated(c, qkv(c), falling_frequencies(4, base));
    expect_rotated(larger_heads, qkv(larger_heads), falling_frequencies(6));
    expect_rotated(c, qkv(c), falling_frequencies(4));
    expect_rotated(longer, qkv(longer), falling_frequencies(4));
    Case larger = longer;
    larger.magnitude = 2;
    expect_rotated(larger, qkv(larger), falling_frequencies(4));
    expect_rotated(longer, qkv(longer), falling_frequencies(4));
  }
}

TEST(Rotary, BackwardRotatesBack) {
  for (const Case& c : all_cases()) {
    const std::vector<double> frequencies = falling_frequencies(c.pairs);
    const HostTensor qkv = HostTensor::random(c.dtype, c.shape(), 1),
                     back = rotated(c, rotated(c, qkv, false, frequencies), true, frequencies);
    for (int64_t e = 0; e < qkv.elements(); ++e) ASSERT_NEAR(back.at(e), qkv.at(e), 6 * half_unit(c.dtype));
  }
}

// Rotating some tokens of sequences by their positions gives what they have when all are rotated.
TEST(Rotary, TurnsTokensByGivenPositions) {
  const std::vector<int32_t> positions = {3, 4, 69, 0, 7, 50};
  for (const DType dtype : kFloatTypes)
    for (const bool backward : {false, true}) {
      const Case c{dtype, 2, 70, 4, 2, 64};
      const std::vector<double> frequencies = falling_frequencies(c.pairs);
      const HostTensor qkv = HostTensor::random(dtype, c.shape(), 1), all = rotated(c, qkv, backward, frequencies);
      const int64_t width = c.shape().cols();
      const auto row_of = [&](int64_t row) { return row / 3 * c.sequence + positions[row]; };
      HostTensor some(dtype, {2, 3, width});
      for (int64_t e = 0; e < some.elements(); ++e) some.set(e, qkv.at(row_of(e / width) * width + e % width));
      const HostTensor out = same_bits_every_way([&](Kernels& kernels) {
        HostTensor result = some;
        kernels.rotary({.qkv = result.view(),
                        .heads = 4,
                        .key_value_heads = 2,
                        .frequencies = frequencies,
                        .backward = backward,
                        .positions = {positions.data(), DType::Int32, {2, 3}}});
        return std::vector{result};
      })[0];
      for (int64_t e = 0; e < out.elements(); ++e) ASSERT_EQ(out.at(e), all.at(row_of(e / width) * width + e % width));
    }
}

}  // namespace
}  // namespace trivet::kernels::rotary_test
