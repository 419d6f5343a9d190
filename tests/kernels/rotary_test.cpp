#include <cmath>

#include "tests/kernels/every_way.h"

namespace trivet::kernels {
namespace {

struct Case {
  DType dtype;
  int64_t batch, sequence, heads, key_value_heads, head_size;
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
    kernels.rotary({result.view(), c.heads, c.key_value_heads, base, inverse});
    return std::vector{result};
  })[0];
}

void expect_rotated(const Case& c, const HostTensor& qkv, double base) {
  const HostTensor out = rotated(c, qkv, false, static_cast<float>(base));
  const int64_t width = c.shape().cols(), half = c.head_size / 2;
  for (int64_t e = 0; e < qkv.elements(); ++e) {
    const int64_t position = e / width % c.sequence, head = e % width / c.head_size, i = e % c.head_size;
    if (head >= c.heads + c.key_value_heads) {
      ASSERT_EQ(out.at(e), qkv.at(e));
      continue;
    }
    const double angle =
        static_cast<double>(position) * std::pow(base, -2.0 * static_cast<double>(i % half) / static_cast<double>(c.head_size));
    const double partner = qkv.at(i < half ? e + half : e - half) * (i < half ? -1.0 : 1.0);
    const double expected = qkv.at(e) * std::cos(angle) + partner * std::sin(angle);
    ASSERT_NEAR(out.at(e), expected, 4 * sum_unit(c.dtype) * 2 + half_unit(c.dtype) * (std::abs(expected) + 1e-3));
  }
}

TEST(Rotary, RotatesQueriesAndKeysAndLeavesValuesAlone) {
  for (const Case& c : all_cases()) expect_rotated(c, HostTensor::random(c.dtype, c.shape(), 1), 10000);
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
  }
}

TEST(Rotary, InverseRotatesBack) {
  for (const Case& c : all_cases()) {
    const HostTensor qkv = HostTensor::random(c.dtype, c.shape(), 1), back = rotated(c, rotated(c, qkv, false), true);
    for (int64_t e = 0; e < qkv.elements(); ++e) ASSERT_NEAR(back.at(e), qkv.at(e), 6 * half_unit(c.dtype));
  }
}

}  // namespace
}  // namespace trivet::kernels
