#include <cmath>
#include <limits>
#include <tuple>

#include "core/random.h"
#include "tests/kernels/every_device.h"

namespace trivet::kernels::dropout_test {
namespace {

constexpr double kStep = 7;
DropoutSite site_of(Number step, float rate = 0.3f, int64_t first_element = 0, int64_t second = 0) {
  return {.rate = rate,
          .key = 0x1234567890abcdef,
          .step = step,
          .first_sample = 5,
          .first_element = first_element,
          .second = second,
          .skipped = 4 * second};
}

// The definition of dropout in kernels/elementwise.h.
bool dropped(const DropoutSite& site, int64_t sample, int64_t element) {
  const uint64_t high = (static_cast<uint64_t>(site.step.value()) << 32) + static_cast<uint64_t>(site.first_sample + sample);
  element += site.first_element + (element >= site.second ? site.skipped : 0);
  return unit_float(philox(site.key, static_cast<uint64_t>(element) / 4, high)[element % 4]) < site.rate;
}

// Sizes are multiples of the four random words of a pack, or odd.
const Shape kShapes[] = {{0, 7}, {1, 1}, {3, 5}, {2, 4, 17}, {2, 1032}, {3, 12011}, {2, 20, 1024}};

// Parts of samples, and second parts, begin anywhere.
TEST_P(KernelsOnEveryDevice, DropoutAddFollowsTheDefinition) {
  for (const DType dtype : kFloatTypes)
    for (const Shape& shape : kShapes)
      for (const auto& [with_residual, first_element, second] :
           {std::tuple<bool, int64_t, int64_t>{true, 0, 0}, {false, 0, 16}, {true, 2, 0}, {false, 3, 5}, {true, 8, 8}}) {
        if (takes_too_long(shape.elements())) continue;
        const DropoutSite here = site_of(kStep, 0.3f, first_element, second);
        const HostTensor x = HostTensor::random(dtype, shape, 1), residual = HostTensor::random(dtype, shape, 2);
        const auto out =
            the_cpus_bits_every_way([&, adds = with_residual, first = first_element, next = second](Kernels& kernels) {
              HostTensor y = HostTensor::poisoned(dtype, shape), in_place = residual;
              const DropoutSite there = site_of(number(kernels, kStep), 0.3f, first, next);
              kernels.dropout_add({x.view(), adds ? residual.view() : ConstTensorView{}, y.view(), there});
              if (adds) {
                kernels.dropout_add({x.view(), in_place.view(), in_place.view(), there});
                EXPECT_TRUE(in_place == y);
              }
              return std::vector{y};
            });
        const int64_t per_sample = shape[0] == 0 ? 1 : shape.elements() / shape[0];
        for (int64_t e = 0; e < shape.elements(); ++e) {
          const double kept = dropped(here, e / per_sample, e % per_sample) ? 0.0 : x.at(e) / (1.0 - here.rate);
          const double expected = kept + (with_residual ? residual.at(e) : 0.0);
          const double tolerance = 4 * sum_unit(dtype) * (std::abs(kept) + 1) + half_unit(dtype) * (std::abs(expected) + 2e-3);
          ASSERT_NEAR(out[0].at(e), expected, tolerance) << e;
          if (!with_residual) {
            ASSERT_EQ(out[0].at(e) == 0.0, kept == 0.0) << e;
          }
        }
      }
}

// Zeros of both signs, and numbers whose quotients overflow, are subnormal, or are too small for a fused remainder to be exact.
TEST_P(KernelsOnEveryDevice, DropoutDividesExtremeNumbersAsTheCpu) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const double extremes[] = {0.0,        -0.0,    0x1p-149, -0x1.8p-140, 0x1.2p-127, -0x1p-126,  0x1.6p-110,
                             -0x1.4p-81, 0x1p-80, 0x1p100,  -0x1.8p100,  0x1.aep127, -kInfinite, kInfinite};
  for (const DType dtype : kFloatTypes)
    for (const float rate : {0x1p-24f, 0.1f, 0.7f, 1 - 0x1p-24f}) {
      HostTensor x = HostTensor::random(dtype, {2, 512}, 1);
      for (int64_t e = 0; e < 512; e += 3) x.set(e, extremes[e / 3 % std::size(extremes)]);
      the_cpus_bits_every_way([&](Kernels& kernels) {
        HostTensor dx = HostTensor::poisoned(dtype, {2, 512});
        kernels.dropout_backward({x.view(), dx.view(), site_of(kStep, rate)});
        return std::vector{dx};
      });
    }
}

TEST_P(KernelsOnEveryDevice, DropoutBackwardDropsTheSameElementsAndMayWorkInPlace) {
  const DropoutSite site = site_of(number(kernels(), kStep));
  for (const DType dtype : kFloatTypes)
    for (const Shape& shape : kShapes) {
      if (takes_too_long(shape.elements())) continue;
      HostTensor dy = HostTensor::random(dtype, shape, 1), forward = HostTensor::poisoned(dtype, shape), dx = forward;
      kernels().dropout_add({dy.view(), {}, forward.view(), site});
      kernels().dropout_backward({dy.view(), dx.view(), site});
      EXPECT_TRUE(dx == forward);
      kernels().dropout_backward({dy.view(), dy.view(), site});
      EXPECT_TRUE(dy == forward);
    }
}

TEST_P(KernelsOnEveryDevice, DropoutOfRateZeroOnlyAdds) {
  for (const DType dtype : kFloatTypes) {
    const HostTensor x = HostTensor::random(dtype, {2, 33}, 1), residual = HostTensor::random(dtype, {2, 33}, 2);
    HostTensor sum = HostTensor::poisoned(dtype, {2, 33}), copy = sum, expected = sum;
    kernels().dropout_add({x.view(), residual.view(), sum.view(), {}});
    kernels().dropout_add({x.view(), {}, copy.view(), {}});
    for (int64_t e = 0; e < 66; ++e) expected.set(e, x.at(e) + residual.at(e));
    EXPECT_TRUE(sum == expected);
    EXPECT_TRUE(copy == x);
  }
}

TEST_P(KernelsOnEveryDevice, DropoutOfASampleIsTheSameWhateverMicrobatchItIsIn) {
  const DropoutSite site = site_of(kStep);
  const HostTensor x = HostTensor::random(DType::Float32, {4, 999}, 1);
  HostTensor whole = HostTensor::poisoned(DType::Float32, {4, 999}), one(DType::Float32, {1, 999});
  kernels().dropout_add({x.view(), {}, whole.view(), site});
  DropoutSite third = site;
  third.first_sample += 2;
  kernels().dropout_add({x.view().row_range(2, 1), {}, one.view(), third});
  for (int64_t e = 0; e < 999; ++e) EXPECT_EQ(one.at(e), whole.at(2 * 999 + e));
}

}  // namespace
}  // namespace trivet::kernels::dropout_test
