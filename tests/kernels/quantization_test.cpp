// Blocks of 8-bit and 4-bit codes: values against the formula in double, bytes against a block written out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/kernels/every_device.h"

namespace trivet::kernels::quantization_test {
namespace {

constexpr int64_t kBlock = kQuantizedBlock;

using Bytes = Values<uint8_t>;

Bytes packed_of(Kernels& kernels, const HostTensor& x, int bits) {
  Bytes packed(quantized_bytes(x.view().elements(), bits));
  kernels.quantize(x.view(), view_of(packed), bits);
  return packed;
}

void unpack(Kernels& kernels, Bytes packed, int bits, TensorView out, bool accumulate = false) {
  kernels.dequantize(view_of(packed), out, bits, accumulate);
}

float scale_of(const Bytes& packed, int64_t block, int bits) {
  float scale;
  std::memcpy(&scale, packed.data() + (block + 1) * quantized_block_bytes(bits) - 4, 4);
  return scale;
}

// Elements 0, 1, 2 ... of the block are 0, 1, -2, 3, -4 ... The largest magnitude is 255.
TEST_P(KernelsOnEveryDevice, QuantizeWritesCodesThenTheScale) {
  HostTensor x(DType::Float32, {kBlock});
  for (int64_t i = 0; i < kBlock; ++i) x.set(i, static_cast<double>(i % 2 == 0 ? -i : i));
  const Bytes eight = packed_of(kernels(), x, 8), four = packed_of(kernels(), x, 4);
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

struct Quantization {
  DType dtype;
  int bits;
};
std::vector<Quantization> quantizations() {
  std::vector<Quantization> all;
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16})
    for (const int bits : {8, 4}) all.push_back({dtype, bits});
  return all;
}

// No value is further from its element than half of the scale, plus the rounding of the result to its type and of the product.
TEST_P(KernelsOnEveryDevice, QuantizedValuesAreWithinHalfAScale) {
  for (const auto& [dtype, bits] : quantizations()) {
    const int64_t blocks = 7;
    const HostTensor x = HostTensor::random(dtype, {blocks * kBlock}, 3);
    HostTensor out(dtype, {blocks * kBlock});
    const Bytes packed = packed_of(kernels(), x, bits);
    unpack(kernels(), packed, bits, out.view());
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
}

// What is quantized once more keeps its codes: values are multiples of the scale.
TEST_P(KernelsOnEveryDevice, QuantizingAnotherTimeChangesNothingButTheRoundingOfTheScale) {
  for (const int bits : {8, 4}) {
    const HostTensor x = HostTensor::random(DType::Float32, {3 * kBlock}, 4);
    HostTensor once(DType::Float32, {3 * kBlock}), twice(DType::Float32, {3 * kBlock});
    unpack(kernels(), packed_of(kernels(), x, bits), bits, once.view());
    unpack(kernels(), packed_of(kernels(), once, bits), bits, twice.view());
    for (int64_t i = 0; i < 3 * kBlock; ++i) ASSERT_NEAR(twice.at(i), once.at(i), 0x1p-22 * std::abs(once.at(i)));
  }
}

TEST_P(KernelsOnEveryDevice, QuantizedBitsDoNotDependOnThreadsInstructionsOrOnWhatElseIsInTheCall) {
  for (const auto& [dtype, bits] : quantizations()) {
    const int64_t blocks = takes_too_long(300 * kBlock) ? 19 : 300;
    HostTensor x = HostTensor::random(dtype, {blocks * kBlock}, 5);
    for (int64_t e = kBlock; e < 2 * kBlock; ++e) x.set(e, 0);
    the_cpus_bits_every_way([&, dtype = dtype, bits = bits](Kernels& kernels) {
      HostTensor packed(DType::UInt8, {quantized_bytes(x.elements(), bits)}), out = HostTensor::poisoned(dtype, {x.elements()}),
                                                                              sum = x;
      kernels.quantize(x.view(), packed.view(), bits);
      kernels.dequantize(packed.view(), out.view(), bits, false);
      kernels.dequantize(packed.view(), sum.view(), bits, true);
      return std::vector<HostTensor>{packed, out, sum};
    });
    const Bytes packed = packed_of(kernels(), x, bits);
    const auto bytes = static_cast<size_t>(quantized_block_bytes(bits));
    for (const int64_t block : {int64_t{0}, int64_t{17}, blocks - 1}) {
      HostTensor one(dtype, {kBlock});
      for (int64_t i = 0; i < kBlock; ++i) one.set(i, x.at(block * kBlock + i));
      EXPECT_EQ(packed_of(kernels(), one, bits), Bytes(packed.begin() + block * bytes, packed.begin() + (block + 1) * bytes));
    }
  }
}

TEST_P(KernelsOnEveryDevice, QuantizedValuesAreAddedAfterTheyAreRounded) {
  for (const auto& [dtype, bits] : quantizations()) {
    const HostTensor x = HostTensor::random(dtype, {kBlock}, 6);
    HostTensor plain(DType::Float32, {kBlock}), sum = HostTensor::random(dtype, {kBlock}, 7);
    const HostTensor before = HostTensor::random(dtype, {kBlock}, 7);
    unpack(kernels(), packed_of(kernels(), x, bits), bits, plain.view());
    unpack(kernels(), packed_of(kernels(), x, bits), bits, sum.view(), true);
    HostTensor expected(dtype, {kBlock});
    for (int64_t i = 0; i < kBlock; ++i)
      expected.set(i, static_cast<double>(static_cast<float>(before.at(i)) + static_cast<float>(plain.at(i))));
    for (int64_t i = 0; i < kBlock; ++i) ASSERT_EQ(sum.at(i), expected.at(i));
  }
}

TEST_P(KernelsOnEveryDevice, QuantizedBlockThatIsNotFiniteBecomesNaNAndItsNeighboursDoNot) {
  for (const auto& [dtype, bits] : quantizations()) {
    for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
      HostTensor x = HostTensor::random(dtype, {3 * kBlock}, 8), out(dtype, {3 * kBlock});
      x.set(kBlock + 77, bad);
      unpack(kernels(), packed_of(kernels(), x, bits), bits, out.view());
      for (int64_t i = 0; i < 3 * kBlock; ++i) ASSERT_EQ(std::isnan(out.at(i)), i / kBlock == 1) << i;
    }
  }
}

TEST_P(KernelsOnEveryDevice, QuantizedZerosAndValuesNearZeroBecomeZeros) {
  for (const double value : {0.0, 0x1p-101, -0x1p-140}) {
    HostTensor x(DType::Float32, {kBlock}), out(DType::Float32, {kBlock});
    for (int64_t i = 0; i < kBlock; ++i) x.set(i, value);
    unpack(kernels(), packed_of(kernels(), x, 8), 8, out.view());
    for (int64_t i = 0; i < kBlock; ++i) ASSERT_EQ(out.at(i), 0.0) << value;
  }
  HostTensor x(DType::Float32, {kBlock}), out(DType::Float32, {kBlock});
  for (int64_t i = 0; i < kBlock; ++i) x.set(i, 0x1p-99);
  unpack(kernels(), packed_of(kernels(), x, 8), 8, out.view());
  EXPECT_NEAR(out.at(0) / 0x1p-99, 1.0, 1e-6);
}

TEST_P(KernelsOnEveryDevice, QuantizeRefusesWhatIsNoWholeBlock) {
  Values<float> values(1000);
  Bytes packed(2000);
  const auto quantize = [&](int64_t elements, int64_t bytes, int bits, DType dtype = DType::Float32) {
    kernels().quantize({values.data(), dtype, {elements}}, {packed.data(), DType::UInt8, {bytes}}, bits);
  };
  EXPECT_NO_THROW(quantize(512, 520, 8));
  EXPECT_THROW(quantize(500, 520, 8), std::logic_error);
  EXPECT_THROW(quantize(512, 512, 8), std::logic_error);
  EXPECT_THROW(quantize(512, 520, 6), std::logic_error);
  EXPECT_THROW(quantize(256, 260, 8, DType::Float64), std::logic_error);
}

}  // namespace
}  // namespace trivet::kernels::quantization_test
