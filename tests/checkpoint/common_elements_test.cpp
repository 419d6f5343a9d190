#include "engine/checkpoint/common_elements.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace trivet::checkpoint {
namespace {

// The position of each element of the region in the full tensor.
std::vector<int64_t> places_of(const Shape& shape, const Region& region) {
  std::vector<int64_t> places;
  for (int64_t i = region.first; i < region.first + region.count; ++i) {
    int64_t left = i, place = 0, stride = 1;
    for (int dim = shape.dims() - 1; dim >= 0; --dim) {
      place += (region.box_start[dim] + left % region.box_shape[dim]) * stride;
      left /= region.box_shape[dim];
      stride *= shape[dim];
    }
    places.push_back(place);
  }
  return places;
}

Region random_region(const Shape& shape, std::mt19937_64& random) {
  Region region{shape, shape, 0, 0};
  for (int dim = 0; dim < shape.dims(); ++dim) {
    region.box_start[dim] = random() % 3 == 0 ? static_cast<int64_t>(random() % static_cast<uint64_t>(shape[dim])) : 0;
    region.box_shape[dim] =
        region.box_start[dim] == 0 && random() % 2 == 0
            ? shape[dim]
            : 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(shape[dim] - region.box_start[dim]));
  }
  const auto elements = static_cast<uint64_t>(region.box_shape.elements());
  region.first = static_cast<int64_t>(random() % elements);
  region.count = static_cast<int64_t>(random() % (elements - static_cast<uint64_t>(region.first) + 1));
  return region;
}

TEST(CommonElements, AgreeWithElementByElementForRandomParts) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 5000; ++trial) {
    std::vector<int64_t> dims;
    for (uint64_t i = random() % 5; i > 0; --i) dims.push_back(1 + static_cast<int64_t>(random() % 5));
    const Shape shape(dims);
    const Region from = random_region(shape, random), to = random_region(shape, random);
    const auto from_places = places_of(shape, from), to_places = places_of(shape, to);
    std::vector<int64_t> copied(to_places.size(), -1);
    for (const CommonElements& common : common_elements(shape, from, to))
      for (int64_t i = 0; i < common.count; ++i) copied.at(common.to + i) = from_places.at(common.from + i);
    for (size_t i = 0; i < to_places.size(); ++i) {
      const bool is_common = std::find(from_places.begin(), from_places.end(), to_places[i]) != from_places.end();
      ASSERT_EQ(copied[i], is_common ? to_places[i] : -1) << "trial " << trial << ", shape " << to_string(shape);
    }
  }
}

TEST(CommonElements, OfTwoRangesOfOneFlattenedTensorAreContiguous) {
  const Shape shape{100, 7, 3}, start{0, 0, 0};
  const auto common = common_elements(shape, {start, shape, 10, 1000}, {start, shape, 500, 1500});
  ASSERT_EQ(common.size(), 1u);
  EXPECT_EQ(common[0].from, 490);
  EXPECT_EQ(common[0].to, 0);
  EXPECT_EQ(common[0].count, 510);
}

}  // namespace
}  // namespace trivet::checkpoint
