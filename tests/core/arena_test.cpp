#include "core/arena.h"

#include <gtest/gtest.h>

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
