#include <cmath>

#include "tests/kernels/every_way.h"

namespace trivet::kernels {
namespace {

struct Quantized {
  HostTensor values, scales;
};

Quantized room_for(int64_t elements, int bits, int64_t block) {
  return {HostTensor(DType::UInt8, {bits == 8 ? elements : (elements + 1) / 2}),
          HostTensor::poisoned(DType::Float32, {(elements + block - 1) / block})};
}

// Quantizes x and dequantizes the result. Returns the dequantized tensor, the scales and the quantized values.
std::vector<HostTensor> round_trip(const HostTensor& x, int bits, int64_t block) {
  return same_bits_every_way([&](Kernels& kernels) {
    Quantized q = room_for(x.elements(), bits, block);
    HostTensor back = HostTensor::poisoned(x.view().dtype, x.view().shape);
    kernels.quantize({.x = x.view(), .values = q.values.view(), .scales = q.scales.view(), .bits = bits, .block = block});
    kernels.dequantize(
        {.values = q.values.view(), .scales = q.scales.view(), .out = back.view(), .bits = bits, .block = block});
    return std::vector{back, q.scales, q.values};
  });
}

void expect_half_a_step(const HostTensor& x, int bits, int64_t block) {
  const DType dtype = x.view().dtype;
  const std::vector<HostTensor> out = round_trip(x, bits, block);
  for (int64_t first = 0; first < x.elements(); first += block) {
    const int64_t end = std::min(x.elements(), first + block);
    double largest = 0;
    for (int64_t e = first; e < end; ++e) largest = std::max(largest, std::abs(x.at(e)));
    const double scale = largest / (bits == 8 ? 127 : 7);
    ASSERT_NEAR(out[1].at(first / block), scale, 0x1p-23 * scale);
    for (int64_t e = first; e < end; ++e)
      ASSERT_NEAR(out[0].at(e), x.at(e), scale * (0.5 + 1e-5) + half_unit(dtype) * largest)
          << name_of(dtype) << ", " << bits << " bits, element " << e << " of " << x.elements();
  }
}

TEST(Quantize, IsWithinHalfAStepOfEachBlocksScale) {
  for (const DType dtype : kFloatTypes)
    for (const int bits : {8, 4})
      for (const int64_t block : {64, 192, 2048})
        for (const int64_t size : {0, 1, 64, 5003}) {
          HostTensor x = HostTensor::random(dtype, {size}, 1);
          for (int64_t e = 0; e < size; ++e) x.set(e, x.at(e) * static_cast<double>(1 + e / block));
          expect_half_a_step(x, bits, block);
        }
}

TEST(Quantize, StoresTwosComplementLowHalfFirstAndRoundsToEven) {
  HostTensor x(DType::Float32, {5});
  const double values[] = {7, -7, 2.5, -1.5, 0.4};
  for (int64_t e = 0; e < 5; ++e) x.set(e, values[e]);
  const auto out = round_trip(x, 4, 64);
  const auto* bytes = static_cast<const uint8_t*>(out[2].view().data);
  EXPECT_EQ(bytes[0], 0x97);  // -7, 7
  EXPECT_EQ(bytes[1], 0xe2);  // -2, 2
  EXPECT_EQ(bytes[2], 0x00);  // padding, 0
  EXPECT_EQ(out[1].at(0), 1);
  x.set(0, 127);
  const auto eight = round_trip(x, 8, 64);
  const auto* whole = static_cast<const int8_t*>(eight[2].view().data);
  EXPECT_EQ(whole[0], 127);
  EXPECT_EQ(whole[1], -7);
  EXPECT_EQ(whole[2], 2);
}

TEST(Quantize, ZerosStayZerosAndWhatIsNotFiniteSpoilsOnlyItsBlock) {
  for (const double misfit : {static_cast<double>(NAN), -static_cast<double>(INFINITY)}) {
    HostTensor x = HostTensor::filled(DType::BFloat16, {192}, 0);
    x.set(70, misfit);
    x.set(130, 1);
    const auto out = round_trip(x, 8, 64);
    for (int64_t e = 0; e < 192; ++e)
      if (e / 64 == 1)
        EXPECT_TRUE(std::isnan(out[0].at(e)));
      else
        EXPECT_EQ(out[0].at(e), e == 130 ? 1 : 0);
  }
}

TEST(Quantize, DequantizeAddsWhereAsked) {
  const HostTensor x = HostTensor::random(DType::Float32, {100}, 1), before = HostTensor::random(DType::Float32, {100}, 2);
  for (const int bits : {8, 4}) {
    const HostTensor back = round_trip(x, bits, 64)[0];
    const auto sum = same_bits_every_way([&](Kernels& kernels) {
      Quantized q = room_for(100, bits, 64);
      HostTensor out = before;
      kernels.quantize({.x = x.view(), .values = q.values.view(), .scales = q.scales.view(), .bits = bits, .block = 64});
      kernels.dequantize({.values = q.values.view(),
                          .scales = q.scales.view(),
                          .out = out.view(),
                          .bits = bits,
                          .block = 64,
                          .accumulate = true});
      return std::vector{out};
    });
    for (int64_t e = 0; e < 100; ++e)
      EXPECT_EQ(sum[0].at(e), static_cast<float>(back.at(e)) + static_cast<float>(before.at(e)));
  }
}

TEST(Quantize, RefusesOtherBlocksAndBits) {
  const auto kernels = make_cpu_kernels(1);
  const HostTensor x(DType::Float32, {64});
  Quantized q = room_for(64, 8, 64);
  const Quantize good{.x = x.view(), .values = q.values.view(), .scales = q.scales.view(), .bits = 8, .block = 64};
  for (const auto& [bits, block] : {std::pair<int, int64_t>{5, 64}, {8, 32}, {8, 100}, {8, 4096}}) {
    Quantize bad = good;
    bad.bits = bits, bad.block = block;
    EXPECT_THROW(kernels->quantize(bad), std::logic_error);
  }
}

}  // namespace
}  // namespace trivet::kernels
