#include <gmock/gmock.h>

#include <cmath>
#include <numeric>
#include <thread>

#include "core/fixed_point.h"
#include "tests/kernels/every_way.h"
#include "tests/kernels/results.h"

namespace trivet::kernels::elementwise_test {
namespace {

constexpr int64_t kSizes[] = {0, 1, 15, 255, 257, 40003};

TEST(Elementwise, EveryHalfIsWidenedAndRoundedAsTheCompilerDoes) {
  HostTensor halves(DType::Float16, {65536}), floats = HostTensor::poisoned(DType::Float32, {65536}), back = halves;
  for (int64_t e = 0; e < 65536; ++e) static_cast<uint16_t*>(halves.view().data)[e] = static_cast<uint16_t>(e);
  const auto out = same_bits_every_way([&](Kernels& kernels) {
    kernels.copy(halves.view(), floats.view());
    kernels.copy(floats.view(), back.view());
    return std::vector{floats, back};
  });
  for (int64_t e = 0; e < 65536; ++e) {
    if (std::isnan(halves.at(e)))
      EXPECT_TRUE(std::isnan(floats.at(e)) && std::isnan(back.at(e)));
    else
      EXPECT_TRUE(floats.at(e) == halves.at(e) && back.at(e) == halves.at(e)) << e;
  }
}

// Values around every rounding boundary of the 16-bit types, subnormals, infinities, NaN.
std::vector<float> awkward_floats() {
  std::vector<float> values;
  for (uint32_t e = 0; e < 1u << 17; ++e) {
    const uint32_t high = philox(1, e, 0)[0] & 0xffff0000u;
    const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x0fff, 0x1000, 0x1001, 0x3000};
    values.push_back(std::bit_cast<float>(high | low[e % 10]));
  }
  return values;
}

TEST(Elementwise, ConversionsRoundOnceToNearestEven) {
  std::vector<float> values = awkward_floats();
  const ConstTensorView from{values.data(), DType::Float32, {static_cast<int64_t>(values.size())}};
  for (const DType dtype : kFloatTypes) {
    const auto out = same_bits_every_way([&](Kernels& kernels) {
      HostTensor to = HostTensor::poisoned(dtype, from.shape);
      kernels.copy(from, to.view());
      return std::vector{to};
    });
    HostTensor expected(dtype, from.shape);
    for (int64_t e = 0; e < from.elements(); ++e) {
      expected.set(e, values[e]);
      if (std::isnan(values[e]))
        ASSERT_TRUE(std::isnan(out[0].at(e)));
      else
        ASSERT_EQ(out[0].at(e), expected.at(e)) << values[e];
    }
  }
}

// A double just above the midpoint of two bfloat16 numbers becomes that midpoint in float32: rounding twice would then go down,
// to the even number.
TEST(Elementwise, DoubleIsRoundedOnceTo16Bits) {
  for (const double sign : {1.0, -1.0}) {
    const HostTensor above = HostTensor::filled(DType::Float64, {20}, sign * (1 + 0x1p-8 + 0x1p-40));
    const HostTensor tie = HostTensor::filled(DType::Float64, {20}, sign * (1 + 0x1p-8));
    const HostTensor half_above = HostTensor::filled(DType::Float64, {20}, sign * (1 + 0x1p-11 + 0x1p-40));
    const HostTensor huge = HostTensor::filled(DType::Float64, {20}, sign * 1e300);
    HostTensor out(DType::BFloat16, {20}), half(DType::Float16, {20});
    const auto kernels = make_cpu_kernels(1);
    kernels->copy(above.view(), out.view());
    EXPECT_EQ(out.at(0), sign * (1 + 0x1p-7));
    kernels->copy(tie.view(), out.view());
    EXPECT_EQ(out.at(0), sign);
    kernels->copy(half_above.view(), half.view());
    EXPECT_EQ(half.at(19), sign * (1 + 0x1p-10));
    kernels->copy(huge.view(), out.view());
    EXPECT_EQ(out.at(3), sign * HUGE_VAL);
  }
}

TEST(Elementwise, AddScaleZeroAndCopyMatchTheirFormulas) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t size : kSizes) {
      const HostTensor x = HostTensor::random(dtype, {size}, 1), y = HostTensor::random(dtype, {size}, 2);
      const auto out = same_bits_every_way([&](Kernels& kernels) {
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

TEST(Elementwise, IntegersAreAddedModulo64Bits) {
  std::vector<int64_t> a{INT64_MAX, -5, 7}, b{1, 2, INT64_MIN};
  make_cpu_kernels(1)->add({a.data(), DType::Int64, {3}}, {b.data(), DType::Int64, {3}});
  EXPECT_EQ(b, (std::vector<int64_t>{INT64_MIN, -3, INT64_MIN + 7}));
}

std::vector<int64_t> words_of(const ExactSum& sum) { return {sum.words().begin(), sum.words().end()}; }

TEST(SumOfSquares, IsExactOverBlocksHoweverItIsComputed) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t size : {0, 1, 256, 257, 1000, 70001}) {
      const HostTensor x = HostTensor::random(dtype, {size}, 1);
      const std::vector<int64_t> whole = words_of(sum_of_squares(*make_cpu_kernels(1), x.view(), 0.7, kSumBlock));
      double reference = 0;
      for (int64_t e = 0; e < size; ++e) reference += std::pow(0.7 * x.at(e), 2);
      for (const cpu::Isa isa : isa_levels())
        for (const int threads : {1, 2, 3}) {
          const cpu::ForcedIsa forced(isa);
          const auto kernels = make_cpu_kernels(threads);
          EXPECT_EQ(words_of(sum_of_squares(*kernels, x.view(), 0.7, kSumBlock)), whole);
          ExactSum parts;  // cut at a multiple of kSumBlock
          const int64_t cut = std::min(size, kSumBlock * 3);
          parts.add(sum_of_squares(*kernels, x.view().slice(0, cut), 0.7, kSumBlock));
          parts.add(sum_of_squares(*kernels, x.view().slice(cut, size - cut), 0.7, kSumBlock));
          EXPECT_EQ(words_of(parts), whole);
        }
      EXPECT_NEAR(sum_of_squares(*make_cpu_kernels(2), x.view(), 0.7, kSumBlock).value(), reference, 1e-12 * (reference + 1));
    }
}

TEST(SumOfSquares, SmallBlocksMayBeCutAnywhereBetweenThem) {
  const HostTensor x = HostTensor::random(DType::Float32, {1000}, 1);
  const auto kernels = make_cpu_kernels(2);
  const std::vector<int64_t> whole = words_of(sum_of_squares(*kernels, x.view(), 1, 8));
  ExactSum parts;
  for (int64_t first = 0; first < 1000; first += 24)
    parts.add(sum_of_squares(*kernels, x.view().slice(first, std::min<int64_t>(24, 1000 - first)), 1, 8));
  EXPECT_EQ(words_of(parts), whole);
  EXPECT_NE(words_of(sum_of_squares(*kernels, x.view(), 1, kSumBlock)), whole);  // rounds in different places
}

TEST(SumOfSquares, NeedsABlockThatDividesThoseOfAllSums) {
  const HostTensor x = HostTensor::random(DType::Float32, {10}, 1);
  HostTensor sum(DType::Int64, {ExactSum::kWords});
  const std::unique_ptr<Kernels> all[] = {make_cpu_kernels(1), make_meta_kernels()};
  for (const auto& kernels : all) {
    const auto sum_in = [&](const Squares& term) { kernels->sum_of_squares(std::span(&term, 1), sum.view()); };
    EXPECT_NO_THROW(sum_in({.x = x.view(), .block = 8}));
    EXPECT_THROW(sum_in({.x = x.view(), .scale = 1}), std::logic_error);  // the block is missing
    EXPECT_THROW(sum_in({.x = x.view(), .block = 24}), std::logic_error);
    EXPECT_THROW(sum_in({.x = x.view(), .block = -8}), std::logic_error);
  }
}

TEST(SumOfSquares, RanksAsThreadsMaySumAtTheSameTime) {
  const HostTensor x = HostTensor::random(DType::BFloat16, {70001}, 1);
  const std::vector<int64_t> expected = words_of(sum_of_squares(*make_cpu_kernels(1), x.view(), 1, kSumBlock));
  std::vector<int> wrong(3, 0);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      const auto kernels = make_cpu_kernels(1 + rank);
      for (int round = 0; round < 50; ++round)
        wrong[rank] += words_of(sum_of_squares(*kernels, x.view(), 1, kSumBlock)) != expected;
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(wrong, std::vector<int>(3, 0));
}

TEST(SumOfSquares, IsNotFiniteWhenAnElementIsNot) {
  for (const DType dtype : kFloatTypes)
    for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
      HostTensor x = HostTensor::random(dtype, {1000}, 1);
      x.set(611, bad);
      EXPECT_FALSE(sum_of_squares(*make_cpu_kernels(1), x.view(), 1, kSumBlock).finite());
    }
}

TEST(FixedPoint, AddRoundsToTheGridAndSkipsWhatDoesNotFit) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t size : kSizes) {
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
      for (const cpu::Isa isa : isa_levels())
        for (const int threads : {1, 3}) {
          const cpu::ForcedIsa forced(isa);
          std::vector<int64_t> sum = before;
          const TensorView view{sum.data(), DType::Int64, {size}};
          EXPECT_EQ(refused_by([&](TensorView count) {
                      make_cpu_kernels(threads)->fixed_point_add(x.view(), scale, limit, view, count);
                    }),
                    refused);
          EXPECT_EQ(sum, expected);
          std::vector<int64_t> stored = before, added(before.size());
          EXPECT_EQ(refused_by([&](TensorView count) {
                      make_cpu_kernels(threads)->fixed_point_store(x.view(), scale, limit,
                                                                   {stored.data(), DType::Int64, {size}}, count);
                    }),
                    refused);
          refused_by([&](TensorView count) {
            make_cpu_kernels(threads)->fixed_point_add(x.view(), scale, limit, {added.data(), DType::Int64, {size}}, count);
          });
          EXPECT_EQ(stored, added);
          HostTensor read(DType::Float32, {size}), rounded = HostTensor::poisoned(DType::Float32, {size});
          make_cpu_kernels(threads)->fixed_point_read({stored.data(), DType::Int64, {size}}, read.view());
          EXPECT_EQ(refused_by([&](TensorView count) {
                      make_cpu_kernels(threads)->fixed_point_round(x.view(), scale, limit, rounded.view(), count);
                    }),
                    refused);
          for (int64_t e = 0; e < size; ++e) {
            ASSERT_EQ(rounded.at(e), read.at(e)) << e;
            ASSERT_EQ(std::signbit(rounded.at(e)), std::signbit(read.at(e))) << e;
          }
        }
    }
}

TEST(FixedPoint, TiesGoToEvenAndTheWholeRangeIsExact) {
  HostTensor x(DType::Float64, {6});
  const double limit = fixed_point::limit(1), values[] = {0x1p-45, 0x3p-45, -0x1p-45, 0x5p-45, std::nextafter(limit, 0), limit};
  for (int64_t e = 0; e < 6; ++e) x.set(e, values[e]);
  std::vector<int64_t> sum(6);
  EXPECT_EQ(refused_by([&](TensorView count) {
              make_cpu_kernels(1)->fixed_point_add(x.view(), 1, limit, {sum.data(), DType::Int64, {6}}, count);
            }),
            1);
  EXPECT_EQ(sum, (std::vector<int64_t>{0, 2, 0, 2, (int64_t{1} << 62) - 512, 0}));
}

TEST(FixedPoint, ReadGivesTheSumRoundedOnce) {
  std::vector<int64_t> sum;
  for (uint64_t e = 0; e < 40003; ++e) sum.push_back(static_cast<int64_t>(philox(5, e, 0)[0]) << (e % 18));
  const ConstTensorView view{sum.data(), DType::Int64, {40003}};
  for (const DType dtype : kFloatTypes) {
    const auto out = same_bits_every_way([&](Kernels& kernels) {
      HostTensor to = HostTensor::poisoned(dtype, {40003});
      kernels.fixed_point_read(view, to.view());
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
