// Tests work that is captured when it runs the second time, and launched as a graph from then on (core/cuda/graph.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "core/cuda/graph.h"
#include "core/error.h"
#include "tests/cuda/stream_order.h"

namespace trivet::cuda::repeated_work_test {
namespace {

__global__ void add_one(const int* from, int* to) { *to = *from + 1; }

// The work is a chain from stream to stream: each number is the one before it, plus one; the test sets number 0.
class Repeated : public StreamOrder {
 protected:
  void launch_add(int from, int to) { TRIVET_LAUNCH(add_one, 1, 1, 0, streams_.current(), numbers_ + from, numbers_ + to); }
  void work() {
    ++calls_;
    launch_add(0, 1);
    side_->enqueue([&] { launch_add(1, 2); });
    const Event done = side_->record();
    other_->wait(done);
    other_->enqueue([&] { launch_add(2, 3); });
    other_->record().synchronize();
    launch_add(3, 4);
  }
  void run(int64_t key = 1) {
    repeated_.run({key}, [&] { work(); });
  }
  void wait() { streams_.make_compute_stream()->record().wait_on_host(); }

  RepeatedWork repeated_{streams_};
  int calls_ = 0;
};

TEST_F(Repeated, IsCalledTwiceAndLaunchedEachTime) {
  for (int time = 0; time < 5; ++time) {
    numbers_[0] = 10 * time;
    run();
    wait();
    EXPECT_EQ(numbers_[4], 10 * time + 4);
    EXPECT_EQ(calls_, std::min(time + 1, 2));
  }
}

TEST_F(Repeated, AnotherKeyBeginsAgain) {
  for (const int64_t key : {1, 1, 1, 2, 2, 2, 1}) run(key);
  wait();
  EXPECT_EQ(calls_, 5);
}

// Nothing but the launch of the graph orders the kernels of this test.
TEST_F(Repeated, ComesAfterWhatStreamsWereGivenAndBeforeWhatTheyAreGiven) {
  const cudaStream_t side = handle_of(*side_), other = handle_of(*other_);
  run();
  run();  // captured: from here on it is only launched
  for (const int value : {5, 6}) {
    wait();
    std::optional<Gate> gate(other);
    TRIVET_LAUNCH(store, 1, 1, 0, other, numbers_, value);
    run();
    TRIVET_LAUNCH(copy_one, 1, 1, 0, side, numbers_ + 4, numbers_ + 9);
    EXPECT_TRUE(stays_busy(side));
    gate->open();
    side_->record().wait_on_host();
    EXPECT_EQ(numbers_[9], value + 4);
  }
}

// Weights are gathered ahead: each step waits for an event of the step before it, whether it is captured or not.
TEST_F(Repeated, WaitsForEventsFromBeforeAndLeavesSomeBehind) {
  Event kept;
  const auto gather_ahead = [&] {
    kept.synchronize();
    launch_add(5, 6);
    side_->enqueue([&] { launch_add(6, 5); });
    kept = side_->record();
  };
  numbers_[5] = 0;
  for (int time = 0; time < 4; ++time) repeated_.run({7}, gather_ahead);
  kept.wait_on_host();
  EXPECT_EQ(numbers_[5], 8);
  kept.synchronize();
  launch_add(5, 7);
  wait();
  EXPECT_EQ(numbers_[7], 9);
}

TEST_F(Repeated, WhatItThrowsEndsTheCapture) {
  run();
  wait();
  const auto broken = [&] {
    side_->enqueue([&] { launch_add(0, 1); });
    throw std::out_of_range("no such token");
  };
  EXPECT_THROW(repeated_.run({1}, broken), std::out_of_range);
  numbers_[0] = 1;
  run();
  wait();
  EXPECT_EQ(numbers_[4], 5);
}

TEST_F(Repeated, WhatCannotBeCapturedIsSaidWithTheKeyThatDoesWithout) {
  const auto waits = [&] { CUDA_CHECK(cudaStreamSynchronize(streams_.compute())); };
  repeated_.run({1}, waits);
  EXPECT_THAT([&] { repeated_.run({1}, waits); },
              testing::ThrowsMessage<DeviceError>(testing::AllOf(
                  testing::StartsWith("capturing a step as a CUDA graph: cuda:0: cudaStreamSynchronize"),
                  testing::HasSubstr("cudaErrorStreamCaptureUnsupported"), testing::HasSubstr("set cuda_graph to \"off\""))));
  run(2);
  run(2);
  wait();
}

}  // namespace
}  // namespace trivet::cuda::repeated_work_test
