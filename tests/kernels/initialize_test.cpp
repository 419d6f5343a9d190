#include <cmath>

#include "tests/kernels/every_way.h"

namespace trivet::kernels::initialize_test {
namespace {

HostTensor initialized(DType dtype, int64_t first, int64_t count, const Init& init, uint64_t key = 42, int threads = 1) {
  HostTensor tensor = HostTensor::poisoned(dtype, {count});
  make_cpu_kernels(threads)->initialize(tensor.view(), init, key, first);
  return tensor;
}

TEST(Initialize, ValuesDependOnTheElementAloneNotOnSlicesThreadsOrLevel) {
  for (const Init::Kind kind : {Init::Kind::Zeros, Init::Kind::Ones, Init::Kind::Normal, Init::Kind::Uniform})
    for (const DType dtype : kFloatTypes) {
      const Init init{kind, 0.02};
      const HostTensor whole = same_bits_every_way([&](Kernels& kernels) {
        HostTensor tensor = HostTensor::poisoned(dtype, {40003});
        kernels.initialize(tensor.view(), init, 42, 0);
        return std::vector{tensor};
      })[0];
      for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 0}, {1, 1}, {3, 7}, {998, 1001}, {40002, 1}}) {
        const HostTensor slice = initialized(dtype, first, count, init);
        for (int64_t e = 0; e < count; ++e) ASSERT_EQ(slice.at(e), whole.at(first + e));
      }
    }
}

TEST(Initialize, NormalIsBoxMullerOnPhiloxBlocks) {
  const HostTensor values = initialized(DType::Float64, 0, 8, {Init::Kind::Normal, 0.5});
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

TEST(Initialize, MomentsAreThoseOfTheDistribution) {
  const int64_t count = 400'000;
  const HostTensor normal = initialized(DType::Float32, 0, count, {Init::Kind::Normal, 0.02});
  const HostTensor uniform = initialized(DType::Float32, 0, count, {Init::Kind::Uniform, 3.0});
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

TEST(Initialize, OtherKeysGiveOtherValues) {
  const Init init{Init::Kind::Normal, 1};
  EXPECT_FALSE(initialized(DType::Float32, 0, 16, init, 1) == initialized(DType::Float32, 0, 16, init, 2));
}

}  // namespace
}  // namespace trivet::kernels::initialize_test
