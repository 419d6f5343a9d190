#include <cmath>

#include "tests/kernels/every_device.h"

namespace trivet::kernels::initialize_test {
namespace {

HostTensor initialized(Kernels& kernels, DType dtype, int64_t first, int64_t count, const Init& init, uint64_t key = 42) {
  HostTensor tensor = HostTensor::poisoned(dtype, {count});
  kernels.initialize(tensor.view(), init, key, first);
  return tensor;
}

TEST_P(KernelsOnEveryDevice, InitializedValuesDependOnTheElementAloneNotOnSlicesThreadsOrLevel) {
  for (const Init::Kind kind : {Init::Kind::Zeros, Init::Kind::Ones, Init::Kind::Normal, Init::Kind::Uniform})
    for (const DType dtype : kFloatTypes) {
      const Init init{kind, 0.02};
      const int64_t size = takes_too_long(40003) ? 2051 : 40003;
      const HostTensor whole =
          same_bits_every_way([&](Kernels& any) { return std::vector{initialized(any, dtype, 0, size, init)}; })[0];
      const HostTensor of_cpu = initialized(*make_cpu_kernels(1), dtype, 0, size, init);
      // log, cos and sin differ on a device by two units in the last place of a double, and so now and then by one of the type.
      const double near = kind == Init::Kind::Normal && !on_cpu() ? std::max(2 * half_unit(dtype), 1e-14) : 0;
      for (int64_t e = 0; e < size; ++e)
        ASSERT_NEAR(whole.at(e), of_cpu.at(e), near * std::abs(of_cpu.at(e)) + (near > 0 ? 1e-18 : 0));
      for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 0}, {1, 1}, {3, 7}, {998, 1001}, {size - 1, 1}}) {
        const HostTensor slice = initialized(kernels(), dtype, first, count, init);
        for (int64_t e = 0; e < count; ++e) ASSERT_EQ(slice.at(e), whole.at(first + e));
      }
    }
}

TEST_P(KernelsOnEveryDevice, InitializedNormalIsBoxMullerOnPhiloxBlocks) {
  const HostTensor values = initialized(kernels(), DType::Float64, 0, 8, {Init::Kind::Normal, 0.5});
  for (uint64_t block = 0; block < 2; ++block) {
    const PhiloxBlock words = philox(42, block, 0);
    for (size_t pair = 0; pair < 2; ++pair) {
      const double radius = std::sqrt(-2 * std::log((words[2 * pair] + 1.0) / 0x1p32)), turn = words[2 * pair + 1] / 0x1p32;
      const auto e = static_cast<int64_t>(4 * block + 2 * pair);
      EXPECT_NEAR(values.at(e), 0.5 * radius * std::cos(2 * M_PI * turn), 1e-14);
      EXPECT_NEAR(values.at(e + 1), 0.5 * radius * std::sin(2 * M_PI * turn), 1e-14);
    }
  }
}

TEST_P(KernelsOnEveryDevice, InitializedMomentsAreThoseOfTheDistribution) {
  const int64_t count = 400'000;
  if (takes_too_long(count)) return;
  const HostTensor normal = initialized(kernels(), DType::Float32, 0, count, {Init::Kind::Normal, 0.02});
  const HostTensor uniform = initialized(kernels(), DType::Float32, 0, count, {Init::Kind::Uniform, 3.0});
  double mean = 0, square = 0, fourth = 0, uniform_square = 0, largest = 0;
  for (int64_t e = 0; e < count; ++e) {
    const double z = normal.at(e) / 0.02, u = uniform.at(e);
    mean += z / count, square += z * z / count, fourth += z * z * z * z / count, uniform_square += u * u / count;
    largest = std::max(largest, std::abs(u));
  }
  EXPECT_NEAR(mean, 0, 0.008);  // five standard errors each
  EXPECT_NEAR(square, 1, 0.012);
  EXPECT_NEAR(fourth, 3, 0.08);
  EXPECT_NEAR(uniform_square, 3.0, 0.022);
  EXPECT_LE(largest, 3.0);
}

TEST_P(KernelsOnEveryDevice, InitializeWithOtherKeysGivesOtherValues) {
  const Init init{Init::Kind::Normal, 1};
  EXPECT_FALSE(initialized(kernels(), DType::Float32, 0, 16, init, 1) ==
               initialized(kernels(), DType::Float32, 0, 16, init, 2));
}

}  // namespace
}  // namespace trivet::kernels::initialize_test
