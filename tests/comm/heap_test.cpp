// Operations on tensors in the world's own memory, which need no staging, give the same results, also when only some ranks use
// that memory.
#include <gtest/gtest.h>

#include <numeric>

#include "core/stream.h"
#include "tests/comm/ranks.h"

namespace trivet::comm {
namespace {

constexpr int64_t kElements = 150001;

// `elements` int64 values in memory of `allocator`, which may be the process's own memory.
struct Numbers {
  Numbers(Allocator& allocator, int64_t elements)
      : buffer(allocator, meter, MemoryCategory::Buffers, DType::Int64, {elements}),
        count(elements),
        data(buffer.view().as<int64_t>()) {}
  TensorView view() { return buffer.view(); }

  MemoryMeter meter;
  Buffer buffer;
  int64_t count;
  int64_t* data;
};

void check_operations(World& world, const std::function<Allocator&(World&)>& memory_of) {
  ProcessGroup& group = world.group();
  const int n = group.size(), rank = group.rank();
  const auto stream = make_inline_stream();
  Numbers whole(memory_of(world), n * kElements), other(memory_of(world), n * kElements);
  for (int64_t i = 0; i < whole.count; ++i) ASSERT_EQ(whole.data[i], 0);

  for (int64_t i = 0; i < whole.count; ++i) whole.data[i] = rank + i;
  group.all_reduce(whole.view(), ReduceOp::Sum, *stream);
  for (int64_t i = 0; i < whole.count; ++i) ASSERT_EQ(whole.data[i], n * i + n * (n - 1) / 2);

  for (int64_t i = 0; i < whole.count; ++i) whole.data[i] = rank + i;
  group.reduce_scatter(whole.view(), whole.view().slice(rank * kElements, kElements), ReduceOp::Max, *stream);
  group.all_gather(whole.view().slice(rank * kElements, kElements), whole.view(), *stream);
  for (int64_t i = 0; i < whole.count; ++i) ASSERT_EQ(whole.data[i], n - 1 + i);

  for (int64_t i = 0; i < whole.count; ++i) whole.data[i] = rank;
  group.all_to_all(whole.view(), other.view(), *stream);
  for (int64_t i = 0; i < whole.count; ++i) ASSERT_EQ(other.data[i], i / kElements);

  ExchangeCounts counts;  // rank a sends kElements - a - b elements to rank b
  for (int peer = 0; peer < n; ++peer) counts.sent.push_back(kElements - rank - peer);
  counts.received = counts.sent;
  const int64_t all = std::accumulate(counts.sent.begin(), counts.sent.end(), int64_t{0});
  group.all_to_all_v(whole.view().slice(0, all), other.view().slice(0, all), counts, *stream);
  for (int64_t i = 0, peer = 0; peer < n; ++peer)
    for (const int64_t end = i + counts.received[peer]; i < end; ++i) ASSERT_EQ(other.data[i], peer);
  group.all_to_all(whole.view(), other.view(), *stream);

  if (rank == 0) group.send(other.view(), n - 1, *stream);
  if (rank == n - 1) group.receive(whole.view(), 0, *stream);
  group.broadcast(whole.view(), n - 1, *stream);
  for (int64_t i = 0; i < whole.count; ++i) ASSERT_EQ(whole.data[i], i / kElements);
}

TEST(Heap, OperationsOnItAndBesideItAndOnBothGiveTheSameResults) {
  run_ranks(Kind::Processes, 3, [](World& world) {
    EXPECT_NE(&world.allocator(), &host_allocator()) << "processes on this system have no common heap";
    const auto in_heap = [](World& w) -> Allocator& { return w.allocator(); };
    const auto beside = [](World&) -> Allocator& { return host_allocator(); };
    check_operations(world, in_heap);
    check_operations(world, beside);
    for (int odd = 0; odd < world.size(); ++odd) {
      const auto mixed = [=](World& w) -> Allocator& { return w.rank() == odd ? host_allocator() : w.allocator(); };
      check_operations(world, mixed);
    }
    check_operations(world, in_heap);
    world.close();
  });
}

TEST(Heap, ReusesWhatWasReleasedAndItReadsAsZero) {
  run_ranks(Kind::Processes, 2, [](World& world) {
    Allocator& heap = world.allocator();
    auto* first = static_cast<char*>(heap.allocate(10000));
    void* second = heap.allocate(1);
    first[0] = first[9999] = 1;
    heap.release(first, 10000);
    EXPECT_EQ(heap.allocate(8000), first);
    EXPECT_EQ(first[0], 0);
    EXPECT_THROW(heap.allocate(int64_t{1} << 40), OutOfMemoryError);
    heap.release(second, 1);
    heap.release(first, 8000);
    world.close();
  });
}

}  // namespace
}  // namespace trivet::comm
