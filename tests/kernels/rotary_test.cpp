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

HostTensor rotated(const Case& c, const HostTensor& qkv, bool inverse) {
  return same_bits_every_way([&](Kernels& kernels) {
    HostTensor result = qkv;
    kernels.rotary({result.view(), c.heads, c.key_value_heads, 10000.0f, inverse});
    return std::vector{result};
  })[0];
}

TEST(Rotary, RotatesQueriesAndKeysAndLeavesValuesAlone) {
  for (const Case& c : all_cases()) {
    const HostTensor qkv = HostTensor::random(c.dtype, c.shape(), 1), out = rotated(c, qkv, false);
    const int64_t width = c.shape().cols(), half = c.head_size / 2;
    for (int64_t e = 0; e < qkv.elements(); ++e) {
      const int64_t position = e / width % c.sequence, head = e % width / c.head_size, i = e % c.head_size;
      if (head >= c.heads + c.key_value_heads) {
        ASSERT_EQ(out.at(e), qkv.at(e));
        continue;
      }
      const double angle = static_cast<double>(position) *
                           std::pow(10000.0, -2.0 * static_cast<double>(i % half) / static_cast<double>(c.head_size));
      const double partner = qkv.at(i < half ? e + half : e - half) * (i < half ? -1.0 : 1.0);
      const double expected = qkv.at(e) * std::cos(angle) + partner * std::sin(angle);
      ASSERT_NEAR(out.at(e), expected, 4 * sum_unit(c.dtype) * 2 + half_unit(c.dtype) * (std::abs(expected) + 1e-3));
    }
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
