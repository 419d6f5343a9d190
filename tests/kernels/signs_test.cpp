// Signs with error feedback against their formula in double, and a block that is written out by hand.
#include "kernels/signs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tests/kernels/every_way.h"

namespace trivet::kernels {
namespace {

constexpr int64_t kBlock = kQuantizedBlock;

struct Packed {
  std::vector<uint8_t> bytes;

  explicit Packed(int64_t elements) : bytes(sign_bytes(elements)) {}
  TensorView view() { return {bytes.data(), DType::UInt8, {static_cast<int64_t>(bytes.size())}}; }
  float scale(int64_t block) const {
    float scale;
    std::memcpy(&scale, bytes.data() + (block + 1) * kSignBlockBytes - 4, 4);
    return scale;
  }
};

HostTensor all(int64_t elements, double value) {
  HostTensor tensor(DType::Float32, {elements});
  for (int64_t i = 0; i < elements; ++i) tensor.set(i, value);
  return tensor;
}

// 1, -2, 3 ... -256, of which the first half counts: the mean of 1 ... 128 is 64.5.
TEST(PackSigns, WritesSignsAndTheMeanMagnitudeAndLeavesTheError) {
  HostTensor values(DType::Float32, {kBlock}), variance(DType::Float32, {kBlock});
  for (int64_t i = 0; i < kBlock; ++i) {
    values.set(i, i % 2 == 0 ? static_cast<double>(i + 1) : static_cast<double>(-i - 1));
    variance.set(i, i < kBlock / 2 ? 0.5 : 0.0);
  }
  Packed packed(kBlock);
  make_cpu_kernels(1)->pack_signs({.values = values.view(), .variance = variance.view(), .packed = packed.view()});
  ASSERT_EQ(packed.bytes.size(), 36u);
  EXPECT_EQ(packed.scale(0), 64.5f);
  for (int64_t byte = 0; byte < 16; ++byte) EXPECT_EQ(packed.bytes[byte], 0b10101010);
  for (int64_t i = 0; i < kBlock / 2; ++i)
    EXPECT_EQ(values.at(i), i % 2 == 0 ? static_cast<double>(i + 1) - 64.5 : 64.5 - static_cast<double>(i + 1)) << i;
  for (int64_t i = kBlock / 2; i < kBlock; ++i) EXPECT_EQ(values.at(i), 0) << "does not count";
  HostTensor out = all(kBlock, 7), sum = all(kBlock, 7);
  const auto kernels = make_cpu_kernels(1);
  kernels->unpack_signs({.packed = packed.view(), .variance = variance.view(), .out = out.view()});
  kernels->unpack_signs(
      {.packed = packed.view(), .variance = variance.view(), .out = sum.view(), .weight = 0.5, .accumulate = true});
  EXPECT_EQ(out.at(0), 64.5);
  EXPECT_EQ(out.at(1), -64.5);
  EXPECT_EQ(out.at(200), 0);
  EXPECT_EQ(sum.at(0), 7 + 32.25);
  EXPECT_EQ(sum.at(1), 7 - 32.25);
  EXPECT_EQ(sum.at(200), 7);
}

// The mean of 256 float32 numbers differs from that in double by at most 8 roundings of partial sums and one of the quotient.
TEST(PackSigns, ScaleAndErrorAreThoseOfTheFormulaWithAnyThreadsAndInstructions) {
  const int64_t blocks = 97, elements = blocks * kBlock;
  const HostTensor given = HostTensor::random(DType::Float32, {elements}, 3);
  HostTensor variance = HostTensor::random(DType::Float32, {elements}, 4);
  for (int64_t i = 0; i < elements; ++i) variance.set(i, i % 7 == 0 ? 0 : std::abs(variance.at(i)) + 1e-9);
  for (int64_t i = 0; i < kBlock; ++i) variance.set(i, 0);  // a block in which nothing counts
  std::vector<uint8_t> bytes;
  const auto result = same_bits_every_way([&](Kernels& kernels) {
    HostTensor values = given, out(DType::Float32, {elements});
    Packed packed(elements);
    kernels.pack_signs({.values = values.view(), .variance = variance.view(), .packed = packed.view()});
    kernels.unpack_signs({.packed = packed.view(), .variance = variance.view(), .out = out.view()});
    if (bytes.empty()) bytes = packed.bytes;
    EXPECT_EQ(packed.bytes, bytes);
    return std::vector<HostTensor>{values, out};
  });
  const HostTensor &error = result[0], &out = result[1];
  for (int64_t block = 0; block < blocks; ++block) {
    double sum = 0, counted = 0;
    for (int64_t i = block * kBlock; i < (block + 1) * kBlock; ++i)
      if (variance.at(i) > 0) sum += std::abs(given.at(i)), ++counted;
    const double scale = counted == 0 ? 0 : sum / counted, tolerance = 10 * 0x1p-24 * scale;
    for (int64_t i = block * kBlock; i < (block + 1) * kBlock; ++i) {
      const double value = variance.at(i) > 0 ? std::copysign(scale, given.at(i)) : 0;
      ASSERT_NEAR(out.at(i), value, tolerance) << i;
      ASSERT_NEAR(error.at(i), variance.at(i) > 0 ? given.at(i) - value : 0, tolerance + 0x1p-24) << i;
    }
  }
}

TEST(PackSigns, RefusesWhatIsNoWholeBlock) {
  HostTensor values = all(kBlock - 1, 1), variance = all(kBlock - 1, 1);
  Packed packed(0);
  EXPECT_THROW(make_cpu_kernels(1)->pack_signs({values.view(), variance.view(), packed.view()}), std::logic_error);
  HostTensor whole = all(kBlock, 1);
  EXPECT_THROW(make_cpu_kernels(1)->pack_signs({whole.view(), variance.view(), Packed(kBlock).view()}), std::logic_error);
  EXPECT_THROW(make_cpu_kernels(1)->pack_signs({whole.view(), whole.view(), packed.view()}), std::logic_error);
}

}  // namespace
}  // namespace trivet::kernels
