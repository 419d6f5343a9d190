#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/dtype.h"
#include "core/random.h"
#include "kernels/cpu/isa.h"

#define TRIVET_LOOPS "tests/kernels/lanes_test_loops.inl"
#include "kernels/cpu/for_each_isa.inl"

namespace trivet::kernels::cpu::lanes_test {
namespace {

// Every test runs on each level that this processor has.
template <typename Body>
void on_every_isa(const Body& body) {
  for (Isa isa : {Isa::Baseline, Isa::V3, Isa::V4}) {
    const ForcedIsa forced(isa);
    body();
  }
}

TEST(Lanes, ExponentialIsWithinTwoUnitsInTheLastPlaceForNonpositiveNumbers) {
  std::vector<float> x, y;
  for (float value = 0.0f; value > -87.0f; value -= 0.000731f) x.push_back(value);
  x.resize(x.size() / 16 * 16);
  y.resize(x.size());
  on_every_isa([&] {
    by_isa(&baseline::exponentials, &v3::exponentials, &v4::exponentials)(x.data(), y.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(static_cast<double>(x[i]));
      ASSERT_LE(std::abs(static_cast<double>(y[i]) - exact), std::ldexp(2.0, std::ilogb(exact) - 23)) << x[i];
    }
  });
}

TEST(Lanes, ExponentialOfZeroInfinityAndNotANumber) {
  float x[16] = {0.0f, -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), -1000.0f}, y[16];
  on_every_isa([&] {
    by_isa(&baseline::exponentials, &v3::exponentials, &v4::exponentials)(x, y, 16);
    EXPECT_EQ(y[0], 1.0f);
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_EQ(y[3], 0.0f);
  });
}

TEST(Lanes, TransposeExchangesRowsAndColumns) {
  std::vector<float> from(256), to(256);
  for (size_t i = 0; i < 256; ++i) from[i] = static_cast<float>(i);
  on_every_isa([&] {
    by_isa(&baseline::transpose_block, &v3::transpose_block, &v4::transpose_block)(from.data(), to.data());
    for (size_t row = 0; row < 16; ++row)
      for (size_t col = 0; col < 16; ++col) ASSERT_EQ(to[col * 16 + row], from[row * 16 + col]);
  });
}

TEST(Lanes, RandomWordsAreThoseOfPhilox) {
  for (uint64_t first : {uint64_t{0}, uint64_t{12345}, uint64_t{0xfffffff8}, uint64_t{0x123fffffffa}})
    on_every_isa([&] {
      uint32_t words[64];
      const uint64_t key = 0x123456789abcdef0u, high = 0x0000000700000003u;
      by_isa(&baseline::philox_block_words, &v3::philox_block_words, &v4::philox_block_words)(key, first, high, words);
      for (uint64_t block = 0; block < 16; ++block)
        for (uint64_t word = 0; word < 4; ++word)
          ASSERT_EQ(words[4 * block + word], philox(key, first + block, high)[word]) << first << " + " << block;
    });
}

TEST(Lanes, BFloat16RoundsAsTheScalarTypeDoes) {
  const float x[16] = {0.0f,
                       -0.0f,
                       1.0f,
                       1.00390625f,
                       1.01171875f,
                       3.0e38f,
                       3.4e38f,
                       1e-40f,
                       -7.123f,
                       65504.0f,
                       std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN(),
                       0.1f,
                       -0.3f,
                       1e10f,
                       1e-10f};
  on_every_isa([&] {
    bfloat16 rounded[16];
    by_isa(&baseline::round_to_bfloat16, &v3::round_to_bfloat16, &v4::round_to_bfloat16)(x, rounded);
    for (int i = 0; i < 16; ++i) EXPECT_EQ(rounded[i].bits, bfloat16(x[i]).bits) << x[i];
  });
}

}  // namespace
}  // namespace trivet::kernels::cpu::lanes_test
