#include <cmath>

#include "core/random.h"
#include "tests/kernels/every_way.h"

namespace trivet::kernels::dropout_test {
namespace {

const DropoutSite kSite{.rate = 0.3f, .key = 0x1234567890abcdef, .step = 7, .first_sample = 5};

// The definition of dropout in kernels/elementwise.h.
bool dropped(const DropoutSite& site, int64_t sample, int64_t element) {
  const uint64_t high = (static_cast<uint64_t>(site.step.value()) << 32) + static_cast<uint64_t>(site.first_sample + sample);
  return unit_float(philox(site.key, static_cast<uint64_t>(element) / 4, high)[element % 4]) < site.rate;
}

const Shape kShapes[] = {{0, 7}, {1, 1}, {3, 5}, {2, 4, 17}, {3, 12011}, {2, 20, 1024}};

TEST(Dropout, AddFollowsTheDefinition) {
  for (const DType dtype : kFloatTypes)
    for (const Shape& shape : kShapes)
      for (const bool with_residual : {true, false}) {
        const HostTensor x = HostTensor::random(dtype, shape, 1), residual = HostTensor::random(dtype, shape, 2);
        const auto out = same_bits_every_way([&](Kernels& kernels) {
          HostTensor y = HostTensor::poisoned(dtype, shape);
          kernels.dropout_add({x.view(), with_residual ? residual.view() : ConstTensorView{}, y.view(), kSite});
          return std::vector{y};
        });
        const int64_t per_sample = shape[0] == 0 ? 1 : shape.elements() / shape[0];
        for (int64_t e = 0; e < shape.elements(); ++e) {
          const double kept = dropped(kSite, e / per_sample, e % per_sample) ? 0.0 : x.at(e) / (1.0 - kSite.rate);
          const double expected = kept + (with_residual ? residual.at(e) : 0.0);
          const double tolerance = 4 * sum_unit(dtype) * (std::abs(kept) + 1) + half_unit(dtype) * (std::abs(expected) + 2e-3);
          ASSERT_NEAR(out[0].at(e), expected, tolerance) << e;
          if (!with_residual) {
            ASSERT_EQ(out[0].at(e) == 0.0, kept == 0.0) << e;
          }
        }
      }
}

TEST(Dropout, BackwardDropsTheSameElementsAndMayWorkInPlace) {
  for (const DType dtype : kFloatTypes)
    for (const Shape& shape : kShapes) {
      HostTensor dy = HostTensor::random(dtype, shape, 1), forward = HostTensor::poisoned(dtype, shape), dx = forward;
      const auto kernels = make_cpu_kernels(2);
      kernels->dropout_add({dy.view(), {}, forward.view(), kSite});
      kernels->dropout_backward({dy.view(), dx.view(), kSite});
      EXPECT_TRUE(dx == forward);
      kernels->dropout_backward({dy.view(), dy.view(), kSite});
      EXPECT_TRUE(dy == forward);
    }
}

TEST(Dropout, RateZeroOnlyAdds) {
  for (const DType dtype : kFloatTypes) {
    const HostTensor x = HostTensor::random(dtype, {2, 33}, 1), residual = HostTensor::random(dtype, {2, 33}, 2);
    HostTensor sum = HostTensor::poisoned(dtype, {2, 33}), copy = sum, expected = sum;
    const auto kernels = make_cpu_kernels(1);
    kernels->dropout_add({x.view(), residual.view(), sum.view(), {}});
    kernels->dropout_add({x.view(), {}, copy.view(), {}});
    for (int64_t e = 0; e < 66; ++e) expected.set(e, x.at(e) + residual.at(e));
    EXPECT_TRUE(sum == expected);
    EXPECT_TRUE(copy == x);
  }
}

TEST(Dropout, SampleIsTheSameWhateverMicrobatchItIsIn) {
  const HostTensor x = HostTensor::random(DType::Float32, {4, 999}, 1);
  HostTensor whole = HostTensor::poisoned(DType::Float32, {4, 999}), one(DType::Float32, {1, 999});
  const auto kernels = make_cpu_kernels(2);
  kernels->dropout_add({x.view(), {}, whole.view(), kSite});
  DropoutSite third = kSite;
  third.first_sample += 2;
  kernels->dropout_add({x.view().row_range(2, 1), {}, one.view(), third});
  for (int64_t e = 0; e < 999; ++e) EXPECT_EQ(one.at(e), whole.at(2 * 999 + e));
}

}  // namespace
}  // namespace trivet::kernels::dropout_test
