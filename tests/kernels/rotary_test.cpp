#include <cmath>

#include "tests/kernels/every_way.h"

namespace trivet::kernels {
namespace {

struct Case {
  DType dtype;
  int64_t batch, sequence, heads, key_value_heads, head_size;
  int64_t rotated = 0;
  RotaryScaling scaling = {};
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

HostTensor rotated(const Case& c, const HostTensor& qkv, bool inverse, float base = 10000.0f) {
  return same_bits_every_way([&](Kernels& kernels) {
    HostTensor result = qkv;
    kernels.rotary({result.view(), c.heads, c.key_value_heads, base, inverse, c.rotated, c.scaling});
    return std::vector{result};
  })[0];
}

// In terms of wavelengths, as Llama 3.1 was published.
double slowed(double frequency, const RotaryScaling& scaling) {
  const double length = static_cast<double>(scaling.original_length), wavelength = 2 * std::acos(-1.0) / frequency;
  if (scaling.type == RotaryScalingType::None) return frequency;
  if (scaling.type == RotaryScalingType::Linear || wavelength > length / scaling.low_frequency_factor)
    return frequency / scaling.factor;
  if (wavelength < length / scaling.high_frequency_factor) return frequency;
  const double smooth =
      (length / wavelength - scaling.low_frequency_factor) / (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

void expect_rotated(const Case& c, const HostTensor& qkv, double base) {
  const HostTensor out = rotated(c, qkv, false, static_cast<float>(base));
  const int64_t width = c.shape().cols(), rotated_size = c.rotated > 0 ? c.rotated : c.head_size, half = rotated_size / 2;
  for (int64_t e = 0; e < qkv.elements(); ++e) {
    const int64_t position = e / width % c.sequence, head = e % width / c.head_size, i = e % c.head_size;
    if (head >= c.heads + c.key_value_heads || i >= rotated_size) {
      ASSERT_EQ(out.at(e), qkv.at(e));
      continue;
    }
    const double frequency = std::pow(base, -2.0 * static_cast<double>(i % half) / static_cast<double>(rotated_size));
    const double angle = static_cast<double>(position) * slowed(frequency, c.scaling);
    const double partner = qkv.at(i < half ? e + half : e - half) * (i < half ? -1.0 : 1.0);
    const double expected = qkv.at(e) * std::cos(angle) + partner * std::sin(angle);
    ASSERT_NEAR(out.at(e), expected, 4 * sum_unit(c.dtype) * 2 + half_unit(c.dtype) * (std::abs(expected) + 1e-3));
  }
}

TEST(Rotary, RotatesQueriesAndKeysAndLeavesValuesAlone) {
  for (const Case& c : all_cases()) expect_rotated(c, HostTensor::random(c.dtype, c.shape(), 1), 10000);
}

TEST(Rotary, RotatesTheFirstElementsOfEachHeadOnly) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t rotated : {2, 10, 24}) {
      const Case c{
          .dtype = dtype, .batch = 2, .sequence = 9, .heads = 3, .key_value_heads = 1, .head_size = 24, .rotated = rotated};
      expect_rotated(c, HostTensor::random(dtype, c.shape(), 1), 10000);
    }
}

// With base 10000 and 24 pairs, some turn fast, some slowly and some in between.
TEST(Rotary, SlowsDownAsItsScalingSays) {
  const RotaryScaling scalings[] = {{.type = RotaryScalingType::Linear, .factor = 2.5},
                                    {.type = RotaryScalingType::Llama3, .factor = 8, .original_length = 512},
                                    {.type = RotaryScalingType::Llama3,
                                     .factor = 32,
                                     .low_frequency_factor = 1,
                                     .high_frequency_factor = 2,
                                     .original_length = 64}};
  for (const DType dtype : kFloatTypes)
    for (const RotaryScaling& scaling : scalings) {
      const Case c{
          .dtype = dtype, .batch = 1, .sequence = 40, .heads = 2, .key_value_heads = 1, .head_size = 48, .scaling = scaling};
      expect_rotated(c, HostTensor::random(dtype, c.shape(), 1), 10000);
    }
}

// Two models in one process may have different bases, head sizes and lengths: what a thread keeps for one must not serve the
// other.
TEST(Rotary, OneThreadServesModelsOfDifferentBases) {
  for (const DType dtype : kFloatTypes) {
    const Case c{dtype, 1, 9, 2, 1, 8}, larger_heads{dtype, 1, 9, 2, 1, 12}, longer{dtype, 1, 20, 2, 1, 8};
    const auto qkv = [](const Case& which) { return HostTensor::random(which.dtype, which.shape(), 1); };
    for (const double base : {10000.0, 500.0, 10000.0}) expect_rotated(c, qkv(c), base);
    expect_rotated(larger_heads, qkv(larger_heads), 10000);
    expect_rotated(c, qkv(c), 10000);
    expect_rotated(longer, qkv(longer), 10000);
    Case slower = longer;
    slower.scaling = {.type = RotaryScalingType::Linear, .factor = 2};
    expect_rotated(slower, qkv(slower), 10000);
    slower.scaling.factor = 4;
    expect_rotated(slower, qkv(slower), 10000);
  }
}

TEST(Rotary, InverseRotatesBack) {
  for (const Case& c : all_cases()) {
    const HostTensor qkv = HostTensor::random(c.dtype, c.shape(), 1), back = rotated(c, rotated(c, qkv, false), true);
    for (int64_t e = 0; e < qkv.elements(); ++e) ASSERT_NEAR(back.at(e), qkv.at(e), 6 * half_unit(c.dtype));
  }
}

// Rotating some tokens of sequences by their positions gives what they have when all are rotated.
TEST(Rotary, TurnsTokensByGivenPositions) {
  const std::vector<int32_t> positions = {3, 4, 69, 0, 7, 50};
  for (const DType dtype : kFloatTypes)
    for (const bool inverse : {false, true}) {
      const Case c{dtype, 2, 70, 4, 2, 64};
      const HostTensor qkv = HostTensor::random(dtype, c.shape(), 1), all = rotated(c, qkv, inverse);
      const int64_t width = c.shape().cols();
      const auto row_of = [&](int64_t row) { return row / 3 * c.sequence + positions[row]; };
      HostTensor some(dtype, {2, 3, width});
      for (int64_t e = 0; e < some.elements(); ++e) some.set(e, qkv.at(row_of(e / width) * width + e % width));
      const HostTensor out = same_bits_every_way([&](Kernels& kernels) {
        HostTensor result = some;
        kernels.rotary({.qkv = result.view(),
                        .heads = 4,
                        .key_value_heads = 2,
                        .inverse = inverse,
                        .positions = {positions.data(), DType::Int32, {2, 3}}});
        return std::vector{result};
      })[0];
      for (int64_t e = 0; e < out.elements(); ++e) ASSERT_EQ(out.at(e), all.at(row_of(e / width) * width + e % width));
    }
}

}  // namespace
}  // namespace trivet::kernels
