#include "core/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace trivet {
namespace {

// Wraps the type, because the test library needs the type_info of a type parameter, and g++ has none for _Float16.
template <typename T>
struct Element {
  using type = T;
};

template <typename E>
class Finite : public testing::Test {
 protected:
  using T = typename E::type;
  static T number(double value) {
    if constexpr (std::is_same_v<T, bfloat16>)
      return bfloat16(static_cast<float>(value));
    else
      return static_cast<T>(value);
  }
  static int64_t first(const std::vector<T>& values) {
    return first_not_finite({values.data(), kDTypeOf<T>, {static_cast<int64_t>(values.size())}});
  }
};

using Types = testing::Types<Element<float>, Element<double>, Element<bfloat16>, Element<float16>>;
TYPED_TEST_SUITE(Finite, Types);

TYPED_TEST(Finite, TheFirstNanOrInfinityIsFoundAtEveryPlace) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const size_t size : {1u, 2u, 4095u, 4096u, 4097u, 9000u})
    for (const size_t place : {size_t{0}, size / 2, size - 1})
      for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
        std::vector<typename TypeParam::type> values(size, this->number(1));
        values[place] = this->number(bad);
        values.back() = this->number(bad);
        EXPECT_EQ(this->first(values), static_cast<int64_t>(place)) << "size " << size;
      }
}

TYPED_TEST(Finite, LargestSmallestAndZeroAreFinite) {
  std::vector<typename TypeParam::type> values;
  const double largest = std::is_same_v<typename TypeParam::type, float16> ? 65504 : 3e38;
  for (const double value : {0.0, -0.0, largest, -largest, 1e-7, -1.0}) values.push_back(this->number(value));
  EXPECT_EQ(this->first(values), -1);
  EXPECT_EQ(this->first({}), -1);
}

// A number that is at least half a unit in the last place above the largest 16-bit number rounds to infinity.
TEST(FiniteIn16Bits, IsWhatDoesNotRoundToInfinity) {
  const auto first = [](float value, DType used_as) {
    const std::vector<float> values{1, -1, value};
    return first_not_finite({values.data(), DType::Float32, {3}}, used_as);
  };
  for (const float sign : {1.0f, -1.0f}) {
    const float half = 65520, brain = 0x1.ffp127f;
    for (const auto& [least, used_as] : {std::pair{half, DType::Float16}, std::pair{brain, DType::BFloat16}}) {
      EXPECT_EQ(first(sign * least, used_as), 2);
      EXPECT_EQ(first(sign * std::nextafter(least, 0.0f), used_as), -1);
      EXPECT_EQ(first(sign * HUGE_VALF, used_as), 2);
      EXPECT_EQ(first(std::nanf(""), used_as), 2);
    }
    EXPECT_TRUE(std::isinf(static_cast<float>(static_cast<float16>(sign * half))));
    EXPECT_FALSE(std::isinf(static_cast<float>(static_cast<float16>(sign * std::nextafter(half, 0.0f)))));
    EXPECT_TRUE(std::isinf(static_cast<float>(bfloat16(sign * brain))));
    EXPECT_FALSE(std::isinf(static_cast<float>(bfloat16(sign * std::nextafter(brain, 0.0f)))));
    EXPECT_EQ(first(sign * 3.4e38f, DType::Float32), -1);
  }
}

TEST(FiniteIn16Bits, AreSaidWithTheirType) {
  const std::vector<float> values{1e30f, HUGE_VALF};
  const ConstTensorView view{values.data(), DType::Float32, {2}};
  EXPECT_EQ(not_finite_value(view, 0, DType::Float16), "1e+30, infinite in float16");
  EXPECT_EQ(not_finite_value(view, 1, DType::Float16), "inf");
}

TEST(FiniteIntegers, AreAlwaysFinite) {
  const std::vector<int64_t> values(3, -1);  // all bits set
  EXPECT_EQ(first_not_finite({values.data(), DType::Int64, {3}}), -1);
}

TEST(ValueAt, ReadsEveryType) {
  const bfloat16 brain(1.5f);
  const auto half = static_cast<float16>(0.25f);
  EXPECT_EQ(value_at({&brain, DType::BFloat16, {1}}, 0), 1.5);
  EXPECT_EQ(value_at({&half, DType::Float16, {1}}, 0), 0.25);
}

}  // namespace
}  // namespace trivet
