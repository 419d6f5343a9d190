#include "core/arena.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace trivet {
namespace {

TEST(Arena, GivesTheFirstGapThatFitsAndMergesNeighbours) {
  Arena arena("test");
  const auto a = arena.allocate(DType::Float32, {16});
  const auto b = arena.allocate(DType::Float32, {16});
  const auto c = arena.allocate(DType::Float32, {16});
  EXPECT_EQ(arena.peak_bytes(), 192);
  arena.release(a);
  arena.release(b);
  EXPECT_EQ(arena.allocate(DType::Float32, {32}).data, a.data);
  EXPECT_EQ(arena.peak_bytes(), 192);
  EXPECT_EQ(arena.used_bytes(), 192);
  arena.release(c);
  EXPECT_EQ(arena.used_bytes(), 128);
}

TEST(Arena, ARealOneOfThePlannedSizeServesTheSameSequence) {
  auto sequence = [](Arena& arena) {
    ScopedTensor a(arena, DType::Float32, {100}), b(arena, DType::BFloat16, {33});
    a.reset();
    ScopedTensor c(arena, DType::Float64, {7, 3});
    return arena.peak_bytes();
  };
  Arena planned("planned");
  const int64_t bytes = sequence(planned);
  MemoryMeter meter;
  Arena real("real", host_allocator(), meter, MemoryCategory::Activations, bytes);
  EXPECT_EQ(sequence(real), bytes);
  EXPECT_EQ(meter.now()[MemoryCategory::Activations], bytes);
}

// The plain first fit, which looks at all blocks.
class FirstFit {
 public:
  int64_t allocate(int64_t bytes) {
    int64_t offset = 0;
    for (const auto& [begin, size] : blocks_) {
      if (begin - offset >= bytes) break;
      offset = begin + size;
    }
    blocks_.emplace(offset, bytes);
    return offset;
  }
  void release(int64_t offset) { blocks_.erase(offset); }

 private:
  std::map<int64_t, int64_t> blocks_;
};

TEST(Arena, PlacesEveryBlockAsThePlainFirstFitDoes) {
  std::mt19937 random(7);
  for (const size_t most : {3, 20, 200}) {
    Arena arena("test");
    FirstFit expected;
    std::vector<std::pair<TensorView, int64_t>> blocks;
    const auto* const base = static_cast<const std::byte*>(arena.allocate(DType::UInt8, {64}).data);
    expected.allocate(64);
    for (int i = 0; i < 3000; ++i) {
      if (blocks.size() == most || (!blocks.empty() && random() % 3 == 0)) {
        const size_t which = random() % blocks.size();
        arena.release(blocks[which].first);
        expected.release(blocks[which].second);
        blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(which));
        continue;
      }
      const int64_t bytes = 64 * (1 + static_cast<int64_t>(random() % 9));
      const TensorView view = arena.allocate(DType::UInt8, {bytes});
      blocks.emplace_back(view, expected.allocate(bytes));
      ASSERT_EQ(static_cast<const std::byte*>(view.data) - base, blocks.back().second);
    }
  }
}

// A plan of a thousand layers holds thousands of blocks. This takes a fraction of a second, and minutes if each allocation
// visits all blocks.
TEST(Arena, AnAllocationAmongManyBlocksIsQuick) {
  Arena arena("test");
  std::vector<TensorView> blocks;
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 300'000; ++i) blocks.push_back(arena.allocate(DType::UInt8, {64}));
  for (const TensorView& block : blocks) arena.release(block);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
  EXPECT_EQ(arena.used_bytes(), 0);
  EXPECT_EQ(arena.peak_bytes(), 300'000 * 64);
}

TEST(Arena, ThePeakCountsGapsBelowABlock) {
  Arena arena("test");
  const auto a = arena.allocate(DType::Float32, {16});
  arena.allocate(DType::Float32, {16});
  arena.release(a);
  arena.allocate(DType::Float32, {32});  // does not fit into the gap
  EXPECT_EQ(arena.used_bytes(), 192);
  EXPECT_EQ(arena.peak_bytes(), 256);
}

TEST(Arena, RefusesMoreThanThePlanSaid) {
  MemoryMeter meter;
  Arena arena("small", host_allocator(), meter, MemoryCategory::Activations, 64);
  const auto a = arena.allocate(DType::UInt8, {64});
  EXPECT_THROW(arena.allocate(DType::UInt8, {1}), std::logic_error);
  arena.release(a);
  EXPECT_THROW(arena.release(a), std::logic_error);
}

TEST(MemoryMeter, KeepsThePeakOfEachCategory) {
  MemoryMeter meter;
  { Buffer buffer(meta_allocator(), meter, MemoryCategory::Optimizer, DType::Float32, {10}); }
  EXPECT_EQ(meter.now().total(), 0);
  { Buffer buffer(meta_allocator(), meter, MemoryCategory::Optimizer, DType::Float32, {5}); }
  EXPECT_EQ(meter.peak()[MemoryCategory::Optimizer], 40);
  const Buffer first(meta_allocator(), meter, MemoryCategory::Optimizer, DType::Float32, {8});
  const Buffer second(meta_allocator(), meter, MemoryCategory::Optimizer, DType::Float32, {6});
  EXPECT_EQ(meter.peak()[MemoryCategory::Optimizer], 56);
}

}  // namespace
}  // namespace trivet
