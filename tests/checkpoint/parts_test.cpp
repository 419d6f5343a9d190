// Tests of the small parts: checksums, overlaps, comparison and jobs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "engine/checkpoint/common_elements.h"
#include "engine/checkpoint/crc32c.h"
#include "engine/checkpoint/parallel.h"
#include "tests/checkpoint/sample.h"
#include "tests/support/memory_file_system.h"

namespace trivet::checkpoint {
namespace {

using namespace trivet::support;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Crc32c, HasThePublishedValues) {  // RFC 3720, B.4
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8A9136AAu);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xff'))), 0x62A8AB43u);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Crc32c, TableAndInstructionAgreeAndContinue) {
  std::mt19937_64 random(1);
  std::string text(1000, '\0');
  for (char& c : text) c = static_cast<char>(random());
  for (size_t length = 0; length < text.size(); length += 13) {
    const auto data = bytes_of(text).first(length);
    EXPECT_EQ(crc32c(data), crc32c_portable(data));
    EXPECT_EQ(crc32c(data.subspan(length / 3), crc32c(data.first(length / 3))), crc32c(data));
  }
}

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

TEST(Jobs, EachRunsOnceAndTheFirstErrorIsThrown) {
  std::vector<std::atomic<int>> runs(100);
  run_jobs(runs.size(), 4, [&](size_t job) { ++runs[job]; });
  for (const auto& count : runs) EXPECT_EQ(count, 1);
  EXPECT_THROW(run_jobs(100, 4,
                        [](size_t job) {
                          if (job == 50) throw std::runtime_error("50");
                        }),
               std::runtime_error);
  run_jobs(0, 0, [](size_t) { FAIL(); });
}

class Compare : public ::testing::Test {
 protected:
  LoadedStep save(const std::string& directory, std::vector<float> values, const std::string& further = "") {
    CheckpointStore store(files_, {.directory = directory, .run_id = "run"});
    std::vector<Piece> pieces{whole_box_piece("weight", {2, 2}, 0, {values.data(), DType::Float32, {4}})};
    if (!further.empty()) pieces.push_back(whole_box_piece(further, {4}, 0, {values.data(), DType::Float32, {4}}));
    store.save({.step = 1, .pieces = pieces, .state = sample_state(1), .config = ""}, {});
    return LoadedStep(files_, directory + "/step-00000001");
  }
  MemoryFileSystem files_;
};

TEST_F(Compare, SaysHowTensorsDiffer) {
  const LoadedStep first = save("/a", {1, 2, 3, 4}, "old"), second = save("/b", {1, 2.5, 3, 4.25}, "new");
  const auto differences = compare(first, second);
  ASSERT_EQ(differences.size(), 3u);
  EXPECT_EQ(differences[0].kind, Difference::OnlyInSecond);
  EXPECT_EQ(differences[1].kind, Difference::OnlyInFirst);
  EXPECT_EQ(differences[2].kind, Difference::Values);
  EXPECT_EQ(differences[2].different_elements, 2);
  EXPECT_EQ(differences[2].largest, 0.5);
}

TEST_F(Compare, ComparesBits) {
  const auto equal = compare(save("/a", {1, 2, 3, 4}), save("/b", {1, 2, 3, 4}));
  ASSERT_EQ(equal.size(), 1u);
  EXPECT_EQ(equal[0].kind, Difference::None);
  const LoadedStep zero = save("/c", {0, 2, 3, 4}), minus = save("/d", {-0.0f, 2, 3, 4});
  EXPECT_EQ(compare(zero, minus)[0].kind, Difference::Values);
  EXPECT_EQ(compare(zero, minus)[0].different_elements, 1);
}

}  // namespace
}  // namespace trivet::checkpoint
