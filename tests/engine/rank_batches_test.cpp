#include "engine/rank_batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace trivet {
namespace {

class RankBatchesTest : public testing::Test {
 protected:
  Microbatch host() const { return {{tokens.data(), DType::Int32, {2, 3}}, {targets.data(), DType::Int32, {2, 3}}, 7}; }

  std::vector<int32_t> tokens{0, 1, 2, 3, 4, 9}, targets{1, -1, -100, 9, 0, 5};
  std::unique_ptr<kernels::Kernels> kernels = kernels::make_cpu_kernels(1);
  MemoryMeter meter;
  SampleSpec sample{.input = {3}, .targets = {3}, .input_values = 10, .classes = 10};
  RankBatches batches{host_allocator(), meter, 2, 2, sample};
};

TEST_F(RankBatchesTest, KeepsACopyOfEachMicrobatch) {
  const Microbatch first = batches.copy(*kernels, 0, host());
  tokens[5] = 8;
  const Microbatch second = batches.copy(*kernels, 1, host());
  EXPECT_EQ(first.input.as<int32_t>()[5], 9);
  EXPECT_EQ(second.input.as<int32_t>()[5], 8);
  EXPECT_EQ(second.targets.as<int32_t>()[2], -100);
  EXPECT_EQ(second.first_sample, 7);
  EXPECT_EQ(meter.now()[MemoryCategory::Buffers], 2 * 2 * 6 * 4);
}

TEST_F(RankBatchesTest, KeepsShorterSamplesInThePlaceOfLongOnes) {
  const Microbatch shorter{{tokens.data(), DType::Int32, {2, 2}}, {targets.data(), DType::Int32, {2, 2}}, 7};
  const Microbatch second = batches.copy(*kernels, 1, shorter);
  const Microbatch first = batches.copy(*kernels, 0, host());
  EXPECT_EQ(second.input.shape, (Shape{2, 2}));
  EXPECT_EQ(second.input.as<int32_t>()[3], 3);
  EXPECT_EQ(second.targets.as<int32_t>()[3], 9);
  EXPECT_EQ(first.input.as<int32_t>()[5], 9);
}

// 3 tokens cannot be shared by 2 ranks; 6 can, and so can the 4 of a shorter microbatch. A balanced cut of these gives each
// rank an early and a late one.
TEST_F(RankBatchesTest, HasTheTokensOfItsPartOfEachSequence) {
  const SampleSpec longer = sample.cut_to(6);
  const std::vector<int32_t> numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const auto of_rank = [&](int rank, const Shape& shape, SequencePart::Cut cut = SequencePart::Cut::InOrder) {
    RankBatches own(host_allocator(), meter, 1, 2, longer, {.rank = rank, .ranks = 2, .cut = cut});
    const Microbatch part =
        own.copy(*kernels, 0, {{numbers.data(), DType::Int32, shape}, {numbers.data(), DType::Int32, shape}, 7});
    EXPECT_EQ(part.first_sample, 7);
    EXPECT_EQ(part.targets.shape, part.input.shape);
    const int64_t count = part.input.elements();
    EXPECT_TRUE(std::equal(part.input.as<int32_t>(), part.input.as<int32_t>() + count, part.targets.as<int32_t>()));
    return std::vector<int32_t>(part.input.as<int32_t>(), part.input.as<int32_t>() + count);
  };
  EXPECT_EQ(of_rank(0, {2, 6}), (std::vector<int32_t>{0, 1, 2, 6, 7, 8}));
  EXPECT_EQ(of_rank(1, {2, 6}), (std::vector<int32_t>{3, 4, 5, 9, 10, 11}));
  EXPECT_EQ(of_rank(1, {2, 4}), (std::vector<int32_t>{2, 3, 6, 7}));
  EXPECT_EQ(of_rank(0, {2, 4}, SequencePart::Cut::Balanced), (std::vector<int32_t>{0, 3, 4, 7}));
  EXPECT_EQ(of_rank(1, {2, 4}, SequencePart::Cut::Balanced), (std::vector<int32_t>{1, 2, 5, 6}));
  EXPECT_THROW(part_of(sample, 2), std::invalid_argument);
}

}  // namespace
}  // namespace trivet
