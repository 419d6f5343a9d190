// Activations and gradients sent between stages: who receives them, and what a send waits for.
#include "engine/links.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "comm/world.h"

namespace trivet {
namespace {

constexpr int64_t kCount = 100;

// One rank of a pipeline of three ranks with one stage each.
struct PipelineRank {
  explicit PipelineRank(comm::World& world)
      : rank(world.rank()),
        channels(world.group(), mesh, channel_table({}, mesh, {{0, 1, 2, 3}, {0, 1, 2}}, {}),
                 {.make_stream = [](auto...) { return make_thread_stream("link"); }}) {}
  ScopedTensor tensor(float value) {
    ScopedTensor tensor(arena, DType::Float32, {kCount});
    std::fill_n(tensor.view().as<float>(), kCount, value);
    return tensor;
  }
  void expect_received(Direction direction, int from, float value) {
    const ScopedTensor received = tensor(-1);
    links.receive(direction, from, received.view()).synchronize();
    for (int64_t e = 0; e < kCount; ++e) ASSERT_EQ(received.view().as<float>()[e], value);
  }

  int rank;
  Mesh mesh{{.pipeline = 3}, 3};
  MemoryMeter meter;
  Arena arena{"activations", host_allocator(), meter, MemoryCategory::Activations, 1 << 16};
  Channels channels;
  StageLinks links{channels};
};

TEST(StageLinks, JoinEachStageWithItsNeighboursBothWays) {
  comm::run_threads(3, [](comm::World& world) {
    PipelineRank own(world);
    const auto value = [](int from, Direction direction) {
      return static_cast<float>(10 * from + (direction == Direction::Forward));
    };
    if (own.rank < 2) own.links.send(Direction::Forward, own.rank + 1, own.tensor(value(own.rank, Direction::Forward)));
    if (own.rank > 0) own.links.send(Direction::Backward, own.rank - 1, own.tensor(value(own.rank, Direction::Backward)));
    if (own.rank > 0) own.expect_received(Direction::Forward, own.rank - 1, value(own.rank - 1, Direction::Forward));
    if (own.rank < 2) own.expect_received(Direction::Backward, own.rank + 1, value(own.rank + 1, Direction::Backward));
    own.links.finish();
    EXPECT_EQ(own.arena.used_bytes(), 0);
    if (own.rank != 1) {
      EXPECT_THROW(own.links.send(Direction::Forward, 2 - own.rank, own.tensor(0)), std::logic_error);
    }
  });
}

// `sent` counts the sends that return while the receiver keeps the sender waiting.
TEST(StageLinks, TwoSendsMayBeInFlightAndNoMore) {
  std::atomic<int> sent = 0;
  comm::run_threads(3, [&](comm::World& world) {
    PipelineRank own(world);
    if (own.rank == 0)
      for (int i = 0; i < 3; ++i) {
        own.links.send(Direction::Forward, 1, own.tensor(static_cast<float>(i)));
        ++sent;
      }
    if (own.rank == 1) {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (sent < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // time for a third send
      EXPECT_EQ(sent, 2);
      for (int i = 0; i < 3; ++i) own.expect_received(Direction::Forward, 0, static_cast<float>(i));
    }
    own.links.finish();
  });
}

TEST(StageLinks, FinishWaitsUntilAllHasArrived) {
  std::atomic<bool> finished = false;
  comm::run_threads(3, [&](comm::World& world) {
    PipelineRank own(world);
    if (own.rank == 0) {
      own.links.send(Direction::Forward, 1, own.tensor(5));
      own.links.finish();
      finished = true;
    }
    if (own.rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_FALSE(finished);
      own.expect_received(Direction::Forward, 0, 5);
    }
  });
}

}  // namespace
}  // namespace trivet
