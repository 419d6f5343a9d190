#include "engine/device_batches.h"

#include <gtest/gtest.h>

#include <vector>

namespace trivet {
namespace {

class DeviceBatchesTest : public testing::Test {
 protected:
  Microbatch host() const { return {{tokens.data(), DType::Int32, {2, 3}}, {targets.data(), DType::Int32, {2, 3}}, 7}; }

  std::vector<int32_t> tokens{0, 1, 2, 3, 4, 9}, targets{1, -1, -100, 9, 0, 5};
  std::unique_ptr<kernels::Kernels> kernels = kernels::make_cpu_kernels(1);
  MemoryMeter meter;
  SampleSpec sample{.input = {3}, .targets = {3}, .input_values = 10, .classes = 10};
  DeviceBatches batches{host_allocator(), meter, 2, 2, sample};
};

TEST_F(DeviceBatchesTest, KeepsACopyOfEachMicrobatch) {
  const Microbatch first = batches.copy(*kernels, 0, host());
  tokens[5] = 8;
  const Microbatch second = batches.copy(*kernels, 1, host());
  EXPECT_EQ(first.input.as<int32_t>()[5], 9);
  EXPECT_EQ(second.input.as<int32_t>()[5], 8);
  EXPECT_EQ(second.targets.as<int32_t>()[2], -100);
  EXPECT_EQ(second.first_sample, 7);
  EXPECT_EQ(meter.now()[MemoryCategory::Buffers], 2 * 2 * 6 * 4);
}

TEST_F(DeviceBatchesTest, KeepsShorterSamplesInThePlaceOfLongOnes) {
  const Microbatch shorter{{tokens.data(), DType::Int32, {2, 2}}, {targets.data(), DType::Int32, {2, 2}}, 7};
  const Microbatch second = batches.copy(*kernels, 1, shorter);
  const Microbatch first = batches.copy(*kernels, 0, host());
  EXPECT_EQ(second.input.shape, (Shape{2, 2}));
  EXPECT_EQ(second.input.as<int32_t>()[3], 3);
  EXPECT_EQ(second.targets.as<int32_t>()[3], 9);
  EXPECT_EQ(first.input.as<int32_t>()[5], 9);
}

}  // namespace
}  // namespace trivet
