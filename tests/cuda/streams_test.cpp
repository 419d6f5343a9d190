// Tests the rules of docs/cuda.md, "Order".
#include "core/cuda/streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <thread>

#include "core/clock.h"
#include "core/cuda/event_clock.h"
#include "core/cuda/launch.h"
#include "core/cuda/memory.h"
#include "core/error.h"
#include "tests/cuda/stream_order.h"

namespace trivet::cuda::streams_test {
namespace {

double milliseconds_now() { return std::chrono::duration<double, std::milli>(system_clock().now()).count(); }

TEST_F(StreamOrder, WorkSeesWhatWasComputedBeforeIt) {
  std::optional<Gate> gate(streams_.compute());
  launch_store(0, 7);
  side_->enqueue([&] { launch_copy(0, 1); });
  EXPECT_TRUE(stays_busy(handle_of(*side_)));
  gate->open();
  side_->record().wait_on_host();
  EXPECT_EQ(numbers_[1], 7);
}

TEST_F(StreamOrder, WorkIsCalledAtOnceAndItsKernelsGoToTheStream) {
  const cudaStream_t side = handle_of(*side_);
  EXPECT_NE(side, streams_.compute());
  EXPECT_EQ(streams_.current(), streams_.compute());
  cudaStream_t inner = nullptr, after = nullptr;
  other_->enqueue([&] {
    inner = handle_of(*side_);
    after = streams_.current();
  });
  EXPECT_EQ(inner, side);
  EXPECT_EQ(after, handle_of(*other_));
}

TEST_F(StreamOrder, KernelsDoNotWaitForAStreamThatNobodySynchronized) {
  Gate gate(handle_of(*side_));
  launch_store(0, 1);
  streams_.make_compute_stream()->record().wait_on_host();
  EXPECT_EQ(numbers_[0], 1);
}

TEST_F(StreamOrder, SynchronizeHoldsTheKernelsAndNotTheHost) {
  std::optional<Gate> gate(handle_of(*side_));
  side_->enqueue([&] { launch_store(0, 5); });
  const Event done = side_->record();
  done.synchronize();  // would not return if the host waited
  launch_copy(0, 1);
  EXPECT_TRUE(stays_busy(streams_.compute()));
  gate->open();
  streams_.make_compute_stream()->record().wait_on_host();
  EXPECT_EQ(numbers_[1], 5);
}

TEST_F(StreamOrder, StreamsWaitForEventsOfOthers) {
  std::optional<Gate> gate(handle_of(*side_));
  side_->enqueue([&] { launch_store(0, 3); });
  other_->wait(side_->record());
  other_->enqueue([&] { launch_copy(0, 1); });
  EXPECT_TRUE(stays_busy(handle_of(*other_)));
  gate->open();
  other_->record().wait_on_host();
  EXPECT_EQ(numbers_[1], 3);
}

TEST_F(StreamOrder, AnEventStandsForWhatCameBeforeItOnly) {
  const Event early = side_->record();
  Gate gate(handle_of(*side_));
  early.synchronize();
  launch_store(0, 1);
  streams_.make_compute_stream()->record().wait_on_host();
  EXPECT_EQ(numbers_[0], 1);
}

TEST_F(StreamOrder, WorkInsideWorkWaitsForTheOuterStream) {
  std::optional<Gate> gate;
  other_->enqueue([&] {
    gate.emplace(streams_.current());
    launch_store(0, 9);
    side_->enqueue([&] { launch_copy(0, 1); });
  });
  EXPECT_TRUE(stays_busy(handle_of(*side_)));
  gate->open();
  side_->record().wait_on_host();
  EXPECT_EQ(numbers_[1], 9);
}

TEST_F(StreamOrder, AStreamWithoutOverlapIsTheKernels) {
  const auto inline_stream = streams_.make_compute_stream();
  EXPECT_EQ(handle_of(*inline_stream), streams_.compute());
  std::optional<Gate> gate(handle_of(*side_));
  inline_stream->wait(side_->record());
  launch_store(0, 1);
  EXPECT_TRUE(stays_busy(streams_.compute()));
}

TEST_F(StreamOrder, EventsOfHostWorkHoldTheCallerAndEventsOfTheDeviceHoldHostWork) {
  const auto host_work = make_thread_stream("host work");
  std::optional<Gate> gate(handle_of(*side_));
  side_->enqueue([&] { launch_store(0, 4); });
  host_work->wait(side_->record());
  int seen = 0;
  host_work->enqueue([&] { seen = numbers_[0]; });
  gate->open();
  other_->wait(host_work->record());  // waits on this thread: `seen` is set when it returns
  EXPECT_EQ(seen, 4);
}

TEST_F(StreamOrder, WhatWorkThrowsComesOutAtOnce) {
  EXPECT_THROW(side_->enqueue([] { throw std::runtime_error("peer lost"); }), std::runtime_error);
  EXPECT_EQ(streams_.current(), streams_.compute());
}

// The compute stream is held for as long as the side stream is busy; the host is not held.
TEST_F(StreamOrder, ObserversAreToldHowLongAStreamWasHeld) {
  struct Observer : WaitObserver {
    explicit Observer(StreamClock& of) : clock(of) {}
    Moment now() override { return clock.now(); }
    void waited(Moment from, Moment to) override { moments.assign({from, to}); }
    StreamClock& clock;
    std::vector<Moment> moments;
  };
  const auto clock = make_event_clock(streams_);
  Observer observer(*clock);
  std::optional<Gate> gate(handle_of(*side_));
  const Event event = side_->record();
  event.observe(observer);
  event.synchronize();
  ASSERT_EQ(observer.moments.size(), 2);  // although the gate is shut
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double opened = milliseconds_now();
  gate->open();
  EXPECT_LT(clock->milliseconds(observer.moments[0]), opened - 15);
  EXPECT_GE(clock->milliseconds(observer.moments[1]), opened - 1);  // two clocks, read at different moments
}

TEST_F(StreamOrder, AClockTellsTheHostsTimeAndUsesItsEventsAgain) {
  const auto clock = make_event_clock(streams_);
  for (int round = 0; round < 2; ++round) {
    const double before = milliseconds_now();
    const StreamClock::Moment first = clock->now(), second = clock->now();
    const double one = clock->milliseconds(first), two = clock->milliseconds(second);
    const double after = milliseconds_now();
    EXPECT_GE(one, before - 1);
    EXPECT_GE(two, one);
    // The host's time is read after the first event. It is late by as much as the host was delayed, which is at most all of
    // this time.
    EXPECT_LE(two, after + (after - before) + 1);
    EXPECT_EQ(second, 2);  // the first event tells the host's time
    clock->forget();
  }
}

TEST_F(StreamOrder, UrgentStreamsHaveTheHigherPriority) {
  const auto priority = [](cudaStream_t stream) {
    int value = 0;
    CUDA_CHECK(cudaStreamGetPriority(stream, &value));
    return value;
  };
  EXPECT_EQ(priority(streams_.compute()), 0);
  EXPECT_EQ(priority(handle_of(*streams_.make_stream(2))), -2);
  EXPECT_EQ(priority(handle_of(*streams_.make_stream(100))), -5);
}

TEST(Streams, RanksOnOneGpuHaveTheirOwn) {
  std::thread ranks[2];
  for (std::thread& rank : ranks)
    rank = std::thread([] {
      const Streams streams(0);
      const auto pinned = make_pinned_allocator(0);
      int* number = static_cast<int*>(pinned->allocate(sizeof(int)));
      const auto side = streams.make_compute_stream();
      for (int i = 0; i < 20; ++i) TRIVET_LAUNCH(store, 1, 1, 0, streams.current(), number, i);
      side->record().wait_on_host();
      EXPECT_EQ(*number, 19);
      pinned->release(number, sizeof(int));
    });
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace trivet::cuda::streams_test
