#include "tensor_parallel/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace trivet::tensor_parallel {
namespace {

using testing::HasSubstr;

// Returns how many ranks count each element of the whole parameter, and checks that the boxes of a rank fill its part.
std::vector<int> times_counted(const ParameterSpec& spec, int size) {
  std::vector<int> counted(spec.shape.elements(), 0);
  for (int rank = 0; rank < size; ++rank) {
    const LocalPart part = local_part(spec, rank, size);
    int64_t filled = 0;
    for (const LocalBox& box : part.boxes) {
      EXPECT_EQ(box.first, filled);
      filled += box.shape.elements();
      for (int64_t row = 0; row < box.shape[0]; ++row)
        for (int64_t col = 0; col < box.shape[1]; ++col)
          counted[(box.start[0] + row) * spec.shape[1] + box.start[1] + col] += box.counted;
    }
    EXPECT_EQ(filled, part.shape.elements());
  }
  return counted;
}

ParameterSpec spec_of(Shape shape, Split split) {
  ParameterSpec spec;
  spec.name = "w";
  spec.shape = shape;
  spec.split = std::move(split);
  return spec;
}

TEST(LocalPart, EveryElementIsCountedOnce) {
  for (const ParameterSpec& spec :
       {spec_of({24, 5}, {0, {12, 6, 6}, {4, 2, 2}}), spec_of({6, 8}, {1, {8}, {}}), spec_of({61, 3}, {0, {61}, {}}),
        spec_of({4, 4}, {}), spec_of({12, 2}, {0, {8, 2, 2}, {4, 1, 1}})})
    for (int size : {1, 2, 4})
      EXPECT_THAT(times_counted(spec, size), testing::Each(1)) << to_string(spec.shape) << " on " << size;
}

TEST(LocalPart, TakesHeadsOfEachSegment) {
  const LocalPart part = local_part(spec_of({24, 5}, {0, {12, 6, 6}, {4, 2, 2}}), 1, 2);
  EXPECT_EQ(part.shape, (Shape{12, 5}));
  ASSERT_EQ(part.boxes.size(), 3u);
  EXPECT_EQ(part.boxes[0].start, (Shape{6, 0}));
  EXPECT_EQ(part.boxes[1].start, (Shape{15, 0}));
  EXPECT_EQ(part.boxes[2].start, (Shape{21, 0}));
}

TEST(LocalPart, NeighboursShareAHeadWhenThereAreFewer) {
  const ParameterSpec spec = spec_of({12, 2}, {0, {8, 2, 2}, {4, 1, 1}});
  EXPECT_EQ(local_part(spec, 2, 4).boxes[1].start, (Shape{8, 0}));
  EXPECT_TRUE(local_part(spec, 0, 4).boxes[1].counted);
  EXPECT_FALSE(local_part(spec, 2, 4).boxes[1].counted);
}

TEST(LocalPart, UnevenPartsDifferByOneAtMost) {
  for (int rank = 0; rank < 4; ++rank) {
    const int64_t rows = local_part(spec_of({61, 3}, {0, {61}, {}}), rank, 4).shape[0];
    EXPECT_TRUE(rows == 15 || rows == 16) << rows;
  }
}

TEST(LocalPart, RefusesHeadsThatCannotBeDealt) {
  try {
    local_part(spec_of({12, 2}, {0, {8, 2, 2}, {4, 2, 2}}), 0, 3);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 parts of w cannot be divided among 3 ranks"));
  }
}

TEST(LocalPart, SharesNothingButUnitsOfRows) {
  for (const ParameterSpec& spec :
       {spec_of({2, 8}, {0, {2}, {}}), spec_of({8, 2}, {1, {2}, {}}), spec_of({8, 4}, {1, {4}, {2}})})
    EXPECT_THROW(local_part(spec, 0, 4), ConfigError) << to_string(spec.shape);
}

TEST(LocalPart, SizesOfOneShareNothing) {
  const LocalPart part = local_part(spec_of({24, 5}, {0, {12, 6, 6}, {4, 2, 2}}), 0, 1);
  ASSERT_EQ(part.boxes.size(), 1u);
  EXPECT_EQ(part.shape, (Shape{24, 5}));
}

}  // namespace
}  // namespace trivet::tensor_parallel
