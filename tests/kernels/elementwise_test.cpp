#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "core/fixed_point.h"
#include "tests/kernels/every_device.h"
#include "tests/kernels/results.h"

namespace trivet::kernels::elementwise_test {
namespace {

constexpr int64_t kSizes[] = {0, 1, 15, 255, 257, 2051, 40003};

TEST_P(KernelsOnEveryDevice, CopyWidensAndRoundsEveryHalfAsTheCompilerDoes) {
  constexpr int64_t kHalves = 1 << 16;
  HostTensor halves(DType::Float16, {kHalves}), floats = HostTensor::poisoned(DType::Float32, {kHalves}), back = halves;
  for (int64_t e = 0; e < kHalves; ++e) static_cast<uint16_t*>(halves.view().data)[e] = static_cast<uint16_t>(e);
  same_bits_every_way([&](Kernels& kernels) {
    kernels.copy(halves.view(), floats.view());
    kernels.copy(floats.view(), back.view());
    return std::vector{floats, back};
  });
  EXPECT_TRUE(back.same_values(halves));
  for (int64_t e = 0; e < kHalves; ++e) ASSERT_TRUE(std::isnan(halves.at(e)) || floats.at(e) == halves.at(e)) << e;
}

// Values around every rounding boundary of the 16-bit types, subnormals, infinities, NaN.
HostTensor awkward_floats() {
  HostTensor values(DType::Float32, {1 << 17});
  for (uint32_t e = 0; e < 1u << 17; ++e) {
    const uint32_t high = philox(1, e, 0)[0] & 0xffff0000u;
    const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x0fff, 0x1000, 0x1001, 0x3000};
    values.view().as<float>()[e] = std::bit_cast<float>(high | low[e % 10]);
  }
  return values;
}

TEST_P(KernelsOnEveryDevice, CopyRoundsOnceToNearestEven) {
  const HostTensor from = awkward_floats();
  for (const DType dtype : kFloatTypes) {
    HostTensor expected(dtype, from.view().shape);
    for (int64_t e = 0; e < from.elements(); ++e) expected.set(e, from.at(e));
    const auto out = same_bits_every_way([&](Kernels& kernels) {
      HostTensor to = HostTensor::poisoned(dtype, from.view().shape);
      kernels.copy(from.view(), to.view());
      return std::vector{to};
    });
    EXPECT_TRUE(out[0].same_values(expected)) << name_of(dtype);
  }
}

// Random bits, so that infinities, subnormals, rounding boundaries and NaNs with any payload are among them.
HostTensor any_bits(DType dtype, int64_t size) {
  HostTensor tensor(dtype, {size});
  auto* bytes = static_cast<unsigned char*>(tensor.view().data);
  for (int64_t b = 0; b < tensor.view().bytes(); ++b)
    bytes[b] = static_cast<unsigned char>(philox(3, static_cast<uint64_t>(b) / 4, 0)[b % 4] >> 11);
  return tensor;
}

TEST_P(KernelsOnEveryDevice, CopyConvertsBetweenAllTypesAsTheCpu) {
  for (const DType from_type : kFloatTypes)
    for (const DType to_type : kFloatTypes)
      for (const int64_t size : {0, 1, 7, 1024, 2051}) {
        const HostTensor from = any_bits(from_type, size);
        the_cpus_bits_every_way([&](Kernels& kernels) {
          HostTensor to = HostTensor::poisoned(to_type, {size});
          kernels.copy(from.view(), to.view());
          return std::vector{to};
        });
      }
}

TEST_P(KernelsOnEveryDevice, CopyTakesIntegersToo) {
  Values<int32_t> from{1, -2, 3, 4, 5}, to(5);
  kernels().copy(view_of(from), view_of(to));
  EXPECT_EQ(to, from);
}

// A double just above the midpoint of two bfloat16 numbers becomes that midpoint in float32: rounding twice would then go down,
// to the even number.
TEST_P(KernelsOnEveryDevice, CopyRoundsADoubleOnceTo16Bits) {
  for (const double sign : {1.0, -1.0}) {
    const HostTensor above = HostTensor::filled(DType::Float64, {20}, sign * (1 + 0x1p-8 + 0x1p-40));
    const HostTensor tie = HostTensor::filled(DType::Float64, {20}, sign * (1 + 0x1p-8));
    const HostTensor half_above = HostTensor::filled(DType::Float64, {20}, sign * (1 + 0x1p-11 + 0x1p-40));
    const HostTensor huge = HostTensor::filled(DType::Float64, {20}, sign * 1e300);
    HostTensor out(DType::BFloat16, {20}), half(DType::Float16, {20});
    kernels().copy(above.view(), out.view());
    EXPECT_EQ(out.at(0), sign * (1 + 0x1p-7));
    kernels().copy(tie.view(), out.view());
    EXPECT_EQ(out.at(0), sign);
    kernels().copy(half_above.view(), half.view());
    EXPECT_EQ(half.at(19), sign * (1 + 0x1p-10));
    kernels().copy(huge.view(), out.view());
    EXPECT_EQ(out.at(3), sign * HUGE_VAL);
  }
}

TEST_P(KernelsOnEveryDevice, AddScaleZeroAndCopyMatchTheirFormulas) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t size : kSizes) {
      if (takes_too_long(size)) continue;
      const HostTensor x = HostTensor::random(dtype, {size}, 1), y = HostTensor::random(dtype, {size}, 2);
      const auto out = the_cpus_bits_every_way([&](Kernels& kernels) {
        HostTensor sum = y, scaled = x, zero = HostTensor::poisoned(dtype, {size}), copy = zero;
        kernels.add(x.view(), sum.view());
        kernels.scale(scaled.view(), 0.3);
        kernels.zero(zero.view());
        kernels.copy(x.view(), copy.view());
        return std::vector{sum, scaled, zero, copy};
      });
      EXPECT_TRUE(out[2] == HostTensor(dtype, {size}));
      EXPECT_TRUE(out[3] == x);
      for (int64_t e = 0; e < size; ++e) {
        const double sum = x.at(e) + y.at(e), scaled = x.at(e) * 0.3;
        ASSERT_NEAR(out[0].at(e), sum, (half_unit(dtype) + sum_unit(dtype)) * std::abs(sum));
        ASSERT_NEAR(out[1].at(e), scaled, half_unit(dtype) * std::abs(scaled) * (1 + 1e-9) + 0x1p-25);
      }
    }
}

TEST_P(KernelsOnEveryDevice, AddWrapsIntegersOf64Bits) {
  Values<int64_t> a{INT64_MAX, -5, 7}, b{1, 2, INT64_MIN};
  kernels().add(view_of(a), view_of(b));
  EXPECT_EQ(b, (Values<int64_t>{INT64_MIN, -3, INT64_MIN + 7}));
}

TEST_P(KernelsOnEveryDevice, AddBiasAddsToEachRowAndRoundsOnce) {
  for (const DType dtype : kFloatTypes)
    for (const DType x_type : {dtype, DType::Float32})
      for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{0, 3}, {1, 1}, {5, 13}, {70, 64}, {1, 4104}}) {
        if (dtype == DType::Float64 && x_type != dtype) continue;
        const HostTensor x = HostTensor::random(x_type, {rows, cols}, 1), bias = HostTensor::random(dtype, {cols}, 2);
        HostTensor expected(dtype, {rows, cols});
        for (int64_t e = 0; e < rows * cols; ++e) expected.set(e, x.at(e) + bias.at(e % cols));
        const auto out = same_bits_every_way([&, shape = Shape{rows, cols}](Kernels& kernels) {
          HostTensor sum = HostTensor::poisoned(dtype, shape);
          kernels.add_bias({.x = x.view(), .bias = bias.view(), .out = sum.view()});
          return std::vector{sum};
        });
        EXPECT_TRUE(out[0] == expected) << name_of(x_type) << " to " << name_of(dtype) << ", " << rows << " rows";
      }
}

TEST_P(KernelsOnEveryDevice, AddBiasWithoutABiasWorksInPlace) {
  HostTensor x = HostTensor::random(DType::BFloat16, {3, 5}, 1);
  const HostTensor before = x;
  kernels().add_bias({.x = x.view(), .out = x.view()});
  EXPECT_EQ(x, before);
}

std::vector<int64_t> words_of(const ExactSum& sum) { return {sum.words().begin(), sum.words().end()}; }

TEST_P(KernelsOnEveryDevice, SumOfSquaresIsExactOverBlocksHoweverItIsComputed) {
  const auto cpu = make_cpu_kernels(1);
  for (const DType dtype : kFloatTypes)
    for (const int64_t size : {0, 1, 17, 256, 257, 1000, 5000, 70001})
      for (const int64_t block : {int64_t{1}, int64_t{64}, kSumBlock}) {
        if (takes_too_long(size) || (block == 1 && size > 300)) continue;
        const HostTensor x = HostTensor::random(dtype, {size}, 1);
        const std::vector<int64_t> whole = words_of(sum_of_squares(*cpu, x.view(), 0.7, block));
        double reference = 0;
        for (int64_t e = 0; e < size; ++e) reference += std::pow(0.7 * x.at(e), 2);
        GetParam()->every_way([&](Kernels& kernels) {
          const Number scale = number(kernels, 0.7);
          EXPECT_EQ(words_of(sum_of_squares(kernels, x.view(), scale, block)), whole);
          ExactSum parts;  // cut at a multiple of kSumBlock
          const int64_t cut = std::min(size, kSumBlock * 3);
          parts.add(sum_of_squares(kernels, x.view().slice(0, cut), scale, block));
          parts.add(sum_of_squares(kernels, x.view().slice(cut, size - cut), scale, block));
          EXPECT_EQ(words_of(parts), whole);
        });
        EXPECT_NEAR(sum_of_squares(kernels(), x.view(), 0.7, block).value(), reference, 1e-12 * (reference + 1));
      }
}

// There are runs of one type and mixed types, empty tensors, and more tensors than one launch takes; each has its block and
// scale. The sum is added to what is there.
TEST_P(KernelsOnEveryDevice, SumOfSquaresOfManyTensorsIsThatOfEach) {
  std::vector<HostTensor> all;
  for (int64_t i = 0; i < 200; ++i)
    all.push_back(HostTensor::random(i < 150 ? DType::BFloat16 : kFloatTypes[i % 4], {i % 5 == 0 ? 0 : i * 37 % 700}, 5));
  for (const size_t used : {size_t{0}, size_t{1}, size_t{3}, all.size()}) {
    std::vector<Squares> terms;
    ExactSum expected;
    expected.add(0.5);
    Values<int64_t> words(expected.words().begin(), expected.words().end());
    for (size_t i = 0; i < used; ++i) {
      terms.push_back({all[i].view(), 1.0 + static_cast<double>(i), i % 2 == 0 ? 256 : 64});
      expected.add(sum_of_squares(*make_cpu_kernels(1), all[i].view(), terms[i].scale, terms[i].block));
    }
    kernels().sum_of_squares(terms, view_of(words));
    EXPECT_TRUE(std::ranges::equal(words, expected.words())) << used;
  }
}

TEST_P(KernelsOnEveryDevice, SumOfSquaresOfSmallBlocksMayBeCutAnywhereBetweenThem) {
  const HostTensor x = HostTensor::random(DType::Float32, {1000}, 1);
  const std::vector<int64_t> whole = words_of(sum_of_squares(kernels(), x.view(), 1, 8));
  ExactSum parts;
  for (int64_t first = 0; first < 1000; first += 24)
    parts.add(sum_of_squares(kernels(), x.view().slice(first, std::min<int64_t>(24, 1000 - first)), 1, 8));
  EXPECT_EQ(words_of(parts), whole);
  EXPECT_NE(words_of(sum_of_squares(kernels(), x.view(), 1, kSumBlock)), whole);  // rounds in different places
}

TEST_P(KernelsOnEveryDevice, SumOfSquaresNeedsABlockThatDividesThoseOfAllSums) {
  const HostTensor x = HostTensor::random(DType::Float32, {10}, 1);
  HostTensor sum(DType::Int64, {ExactSum::kWords});
  const auto meta = make_meta_kernels();
  for (Kernels* any : {&kernels(), meta.get()}) {
    const auto sum_in = [&](const Squares& term) { any->sum_of_squares(std::span(&term, 1), sum.view()); };
    EXPECT_NO_THROW(sum_in({.x = x.view(), .block = 8}));
    EXPECT_THROW(sum_in({.x = x.view(), .scale = 1}), std::logic_error);  // the block is missing
    EXPECT_THROW(sum_in({.x = x.view(), .block = 24}), std::logic_error);
    EXPECT_THROW(sum_in({.x = x.view(), .block = -8}), std::logic_error);
  }
}

TEST_P(KernelsOnEveryDevice, SumOfSquaresCountsBlocksThatAreNotFinite) {
  for (const DType dtype : kFloatTypes)
    for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
      HostTensor x = HostTensor::random(dtype, {1000}, 1);
      x.set(611, bad), x.set(900, bad);
      EXPECT_EQ(words_of(sum_of_squares(kernels(), x.view(), 1, kSumBlock)).back(), 2);
    }
}

TEST_P(KernelsOnEveryDevice, DivideByNormGivesUnitLength) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t size : {0, 1, 7, 1024, 2051}) {
      const HostTensor x = HostTensor::random(dtype, {size}, 3);
      const double squares = sum_of_squares(kernels(), x.view(), 1, kSumBlock).value(), norm = std::sqrt(squares);
      const auto out = the_cpus_bits_every_way([&](Kernels& kernels) {
        HostTensor unit = x, shorter = x;
        const std::vector<int64_t> sum = words_of(sum_of_squares(kernels, x.view(), 1, kSumBlock));
        Values<int64_t> words(sum.begin(), sum.end());
        kernels.divide_by_norm(unit.view(), view_of(words), 0);
        kernels.divide_by_norm(shorter.view(), view_of(words), 0.5);
        return std::vector{unit, shorter};
      });
      for (int64_t e = 0; e < size; ++e) {
        ASSERT_NEAR(out[0].at(e), x.at(e) / norm, 2 * half_unit(dtype) * std::abs(x.at(e) / norm) + 0x1p-25);
        ASSERT_NEAR(out[1].at(e), x.at(e) / (norm + 0.5), 2 * half_unit(dtype) * std::abs(x.at(e) / norm) + 0x1p-25);
      }
    }
}

TEST_P(KernelsOnEveryDevice, FixedPointAddRoundsToTheGridAndSkipsWhatDoesNotFit) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t size : kSizes) {
      if (takes_too_long(size)) continue;
      HostTensor x = HostTensor::random(dtype, {size}, 1);
      for (int64_t e = 0; e < size; e += 7) x.set(e, x.at(e) * 1e-9);                             // bits below the grid
      for (int64_t e = 128; e < std::min<int64_t>(size, 300); ++e) x.set(e, e % 2 ? -0.0 : 0.0);  // long stretches of zeros
      if (size > 100) x.set(3, std::nan("")), x.set(50, HUGE_VAL), x.set(77, 100.0), x.set(99, -4000.0);
      if (size > 300) x.set(200, std::nan(""));  // alone among zeros
      const double scale = 1.0 / 3, limit = 30;
      std::vector<int64_t> expected(size);
      std::iota(expected.begin(), expected.end(), -5);
      const std::vector<int64_t> before = expected;
      int64_t refused = 0;
      for (int64_t e = 0; e < size; ++e) {
        const double value = x.at(e) * scale;
        if (std::abs(value) < limit)
          expected[e] += std::llrint(value * 0x1p44);
        else
          ++refused;
      }
      GetParam()->every_way([&](Kernels& kernels) {
        const Number third = number(kernels, scale);
        Values<int64_t> sum(before.begin(), before.end()), stored = sum, added(sum.size());
        const auto add = [&](TensorView count) { kernels.fixed_point_add(x.view(), third, limit, view_of(sum), count); };
        EXPECT_EQ(refused_by(add), refused);
        EXPECT_TRUE(std::ranges::equal(sum, expected));
        EXPECT_EQ(refused_by([&](TensorView count) {
                    kernels.fixed_point_store(x.view(), third, limit, view_of(stored), count);
                    kernels.fixed_point_add(x.view(), third, limit, view_of(added), count);
                  }),
                  2 * refused);
        EXPECT_EQ(stored, added);
        for (const DType to : kFloatTypes) {
          HostTensor read(to, {size}), rounded = HostTensor::poisoned(to, {size});
          kernels.fixed_point_read(view_of(stored), read.view());
          EXPECT_EQ(
              refused_by([&](TensorView count) { kernels.fixed_point_round(x.view(), third, limit, rounded.view(), count); }),
              refused);
          EXPECT_EQ(rounded, read);
        }
      });
    }
}

TEST_P(KernelsOnEveryDevice, FixedPointTiesGoToEvenAndTheWholeRangeIsExact) {
  HostTensor x(DType::Float64, {6});
  const double limit = fixed_point::limit(1), values[] = {0x1p-45, 0x3p-45, -0x1p-45, 0x5p-45, std::nextafter(limit, 0), limit};
  for (int64_t e = 0; e < 6; ++e) x.set(e, values[e]);
  Values<int64_t> sum(6);
  EXPECT_EQ(refused_by([&](TensorView count) { kernels().fixed_point_add(x.view(), 1, limit, view_of(sum), count); }), 1);
  EXPECT_EQ(sum, (Values<int64_t>{0, 2, 0, 2, (int64_t{1} << 62) - 512, 0}));
}

TEST_P(KernelsOnEveryDevice, FixedPointReadGivesTheSumRoundedOnce) {
  Values<int64_t> sum;
  for (uint64_t e = 0; e < 40003; ++e) sum.push_back(static_cast<int64_t>(philox(5, e, 0)[0]) << (e % 18));
  for (const DType dtype : kFloatTypes) {
    const auto out = the_cpus_bits_every_way([&](Kernels& kernels) {
      HostTensor to = HostTensor::poisoned(dtype, {40003});
      kernels.fixed_point_read(view_of(sum), to.view());
      return std::vector{to};
    });
    for (int64_t e = 0; e < 40003; ++e) {
      const double expected = std::ldexp(static_cast<double>(sum[e]), -44);
      const double smallest = dtype == DType::Float16 ? 0x1p-25 : 0.0;
      ASSERT_NEAR(out[0].at(e), expected, half_unit(dtype) * std::abs(expected) + smallest);
    }
  }
}

}  // namespace
}  // namespace trivet::kernels::elementwise_test
