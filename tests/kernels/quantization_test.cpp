// Blocks of 8-bit and 4-bit codes: values against the formula in double, bytes against a block written out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "tests/kernels/every_way.h"

namespace trivet::kernels::quantization_test {
namespace {

constexpr int64_t kBlock = kQuantizedBlock;

std::vector<uint8_t> packed_of(const HostTensor& x, int bits) {
  std::vector<uint8_t> packed(quantized_bytes(x.view().elements(), bits));
  make_cpu_kernels(1)->quantize(x.view(), {packed.data(), DType::UInt8, {static_cast<int64_t>(packed.size())}}, bits);
  return packed;
}

void unpack(std::vector<uint8_t> packed, int bits, TensorView out, bool accumulate = false) {
  const TensorView view{packed.data(), DType::UInt8, {static_cast<int64_t>(packed.size())}};
  make_cpu_kernels(1)->dequantize(view, out, bits, accumulate);
}

float scale_of(const std::vector<uint8_t>& packed, int64_t block, int bits) {
  float scale;
  std::memcpy(&scale, packed.data() + (block + 1) * quantized_block_bytes(bits) - 4, 4);
  return scale;
}

// Elements 0, 1, 2 ... of the block are 0, 1, -2, 3, -4 ... The largest magnitude is 255.
TEST(Quantize, WritesCodesThenTheScale) {
  HostTensor x(DType::Float32, {kBlock});
  for (int64_t i = 0; i < kBlock; ++i) x.set(i, static_cast<double>(i % 2 == 0 ? -i : i));
  const std::vector<uint8_t> eight = packed_of(x, 8), four = packed_of(x, 4);
  ASSERT_EQ(eight.size(), 260u);
  ASSERT_EQ(four.size(), 132u);
  EXPECT_EQ(scale_of(eight, 0, 8), 255.0f / 127);
  EXPECT_EQ(scale_of(four, 0, 4), 255.0f / 7);
  EXPECT_EQ(static_cast<int8_t>(eight[255]), 127);
  EXPECT_EQ(static_cast<int8_t>(eight[254]), -127);  // 254 x 127 / 255 = 126.5..., the nearest is 127
  EXPECT_EQ(static_cast<int8_t>(eight[100]), -50);   // 49.8
  EXPECT_EQ(four[127], (-7 + 8) | (7 + 8) << 4);
  EXPECT_EQ(four[50], (-3 + 8) | (3 + 8) << 4);  // elements 100 and 101: -2.7 and 2.8
  EXPECT_EQ(four[0], 8 | 8 << 4);
}

class Quantized : public testing::TestWithParam<std::tuple<DType, int>> {};

// No value is further from its element than half of the scale, plus the rounding of the result to its type and of the product.
TEST_P(Quantized, ValuesAreWithinHalfAScale) {
  const auto [dtype, bits] = GetParam();
  const int64_t blocks = 7;
  const HostTensor x = HostTensor::random(dtype, {blocks * kBlock}, 3);
  HostTensor out(dtype, {blocks * kBlock});
  const std::vector<uint8_t> packed = packed_of(x, bits);
  unpack(packed, bits, out.view());
  const double rounding = dtype == DType::Float32 ? 0x1p-23 : dtype == DType::BFloat16 ? 0x1p-8 : 0x1p-11;
  for (int64_t block = 0; block < blocks; ++block) {
    double largest = 0;
    for (int64_t i = 0; i < kBlock; ++i) largest = std::max(largest, std::abs(x.at(block * kBlock + i)));
    const double scale = static_cast<double>(scale_of(packed, block, bits));
    EXPECT_NEAR(scale, largest / largest_code(bits), 0x1p-23 * scale);
    for (int64_t i = block * kBlock; i < (block + 1) * kBlock; ++i)
      ASSERT_NEAR(out.at(i), x.at(i), scale * (0.5 + 0x1p-16) + rounding * std::abs(x.at(i))) << i;
  }
}

// What is quantized once more keeps its codes: values are multiples of the scale.
TEST(Quantize, AnotherRoundChangesNothingButTheRoundingOfTheScale) {
  for (const int bits : {8, 4}) {
    const HostTensor x = HostTensor::random(DType::Float32, {3 * kBlock}, 4);
    HostTensor once(DType::Float32, {3 * kBlock}), twice(DType::Float32, {3 * kBlock});
    unpack(packed_of(x, bits), bits, once.view());
    unpack(packed_of(once, bits), bits, twice.view());
    for (int64_t i = 0; i < 3 * kBlock; ++i) ASSERT_NEAR(twice.at(i), once.at(i), 0x1p-22 * std::abs(once.at(i)));
  }
}

TEST_P(Quantized, BitsDoNotDependOnThreadsInstructionsOrOnWhatElseIsInTheCall) {
  const auto [dtype, bits] = GetParam();
  const int64_t blocks = 300;
  const HostTensor x = HostTensor::random(dtype, {blocks * kBlock}, 5);
  same_bits_every_way([&, dtype = dtype, bits = bits](Kernels& kernels) {
    HostTensor packed(DType::UInt8, {quantized_bytes(x.elements(), bits)}), out(dtype, {x.elements()}), sum = x;
    kernels.quantize(x.view(), packed.view(), bits);
    kernels.dequantize(packed.view(), out.view(), bits, false);
    kernels.dequantize(packed.view(), sum.view(), bits, true);
    return std::vector<HostTensor>{packed, out, sum};
  });
  const std::vector<uint8_t> packed = packed_of(x, bits);
  const auto bytes = static_cast<size_t>(quantized_block_bytes(bits));
  for (const int64_t block : {int64_t{0}, int64_t{17}, blocks - 1}) {
    HostTensor one(dtype, {kBlock});
    for (int64_t i = 0; i < kBlock; ++i) one.set(i, x.at(block * kBlock + i));
    EXPECT_EQ(packed_of(one, bits), std::vector<uint8_t>(packed.begin() + block * bytes, packed.begin() + (block + 1) * bytes));
  }
}

TEST_P(Quantized, ValuesAreAddedAfterTheyAreRounded) {
  const auto [dtype, bits] = GetParam();
  const HostTensor x = HostTensor::random(dtype, {kBlock}, 6);
  HostTensor plain(DType::Float32, {kBlock}), sum = HostTensor::random(dtype, {kBlock}, 7);
  const HostTensor before = HostTensor::random(dtype, {kBlock}, 7);
  unpack(packed_of(x, bits), bits, plain.view());
  unpack(packed_of(x, bits), bits, sum.view(), true);
  HostTensor expected(dtype, {kBlock});
  for (int64_t i = 0; i < kBlock; ++i)
    expected.set(i, static_cast<double>(static_cast<float>(before.at(i)) + static_cast<float>(plain.at(i))));
  for (int64_t i = 0; i < kBlock; ++i) ASSERT_EQ(sum.at(i), expected.at(i));
}

TEST_P(Quantized, ABlockThatIsNotFiniteBecomesNaNAndItsNeighboursDoNot) {
  const auto [dtype, bits] = GetParam();
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    HostTensor x = HostTensor::random(dtype, {3 * kBlock}, 8), out(dtype, {3 * kBlock});
    x.set(kBlock + 77, bad);
    unpack(packed_of(x, bits), bits, out.view());
    for (int64_t i = 0; i < 3 * kBlock; ++i) ASSERT_EQ(std::isnan(out.at(i)), i / kBlock == 1) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, Quantized, testing::Combine(testing::Values(DType::Float32, DType::BFloat16, DType::Float16), testing::Values(8, 4)),
    [](const auto& which) {
      return std::string(name_of(std::get<0>(which.param))) + "_" + std::to_string(std::get<1>(which.param));
    });

TEST(Quantize, ZerosAndValuesNearZeroBecomeZeros) {
  for (const double value : {0.0, 0x1p-101, -0x1p-140}) {
    HostTensor x(DType::Float32, {kBlock}), out(DType::Float32, {kBlock});
    for (int64_t i = 0; i < kBlock; ++i) x.set(i, value);
    unpack(packed_of(x, 8), 8, out.view());
    for (int64_t i = 0; i < kBlock; ++i) ASSERT_EQ(out.at(i), 0.0) << value;
  }
  HostTensor x(DType::Float32, {kBlock}), out(DType::Float32, {kBlock});
  for (int64_t i = 0; i < kBlock; ++i) x.set(i, 0x1p-99);
  unpack(packed_of(x, 8), 8, out.view());
  EXPECT_NEAR(out.at(0) / 0x1p-99, 1.0, 1e-6);
}

TEST(Quantize, RefusesWhatIsNoWholeBlock) {
  std::vector<float> values(1000);
  std::vector<uint8_t> packed(2000);
  const auto quantize = [&](int64_t elements, int64_t bytes, int bits, DType dtype = DType::Float32) {
    make_cpu_kernels(1)->quantize({values.data(), dtype, {elements}}, {packed.data(), DType::UInt8, {bytes}}, bits);
  };
  EXPECT_NO_THROW(quantize(512, 520, 8));
  EXPECT_THROW(quantize(500, 520, 8), std::logic_error);
  EXPECT_THROW(quantize(512, 512, 8), std::logic_error);
  EXPECT_THROW(quantize(512, 520, 6), std::logic_error);
  EXPECT_THROW(quantize(256, 260, 8, DType::Float64), std::logic_error);
}

}  // namespace
}  // namespace trivet::kernels::quantization_test
