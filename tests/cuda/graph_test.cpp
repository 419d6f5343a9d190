// Capture and replay on the fake device work as they do with CUDA.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/cuda/handle.h"
#include "core/cuda/launch.h"
#include "core/cuda/memory.h"
#include "shim.h"
#include "tests/cuda/gate.h"

namespace trivet::cuda::graph_test {
namespace {

__global__ void add_to(int* number, int value) { *number += value; }

class Capture : public testing::Test {
 protected:
  Capture() { number_ = static_cast<int*>(pinned_->allocate(sizeof(int))); }
  ~Capture() override { pinned_->release(number_, sizeof(int)); }

  static StreamHandle make_stream() {
    cudaStream_t stream = nullptr;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return StreamHandle(stream);
  }
  static EventHandle make_event() {
    cudaEvent_t event = nullptr;
    CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return EventHandle(event);
  }
  void begin() { CUDA_CHECK(cudaStreamBeginCapture(main_.get(), cudaStreamCaptureModeThreadLocal)); }
  cudaError_t end() { return cudaStreamEndCapture(main_.get(), &graph_); }
  // Forks from the main stream to the side stream, which adds 10.
  void fork() {
    CUDA_CHECK(cudaEventRecord(forked_.get(), main_.get()));
    CUDA_CHECK(cudaStreamWaitEvent(side_.get(), forked_.get()));
    TRIVET_LAUNCH(add_to, 1, 1, 0, side_.get(), number_, 10);
  }
  void join() {
    CUDA_CHECK(cudaEventRecord(joined_.get(), side_.get()));
    CUDA_CHECK(cudaStreamWaitEvent(main_.get(), joined_.get()));
  }

  std::unique_ptr<Allocator> pinned_ = make_pinned_allocator(0);
  StreamHandle main_ = make_stream(), side_ = make_stream();
  EventHandle forked_ = make_event(), joined_ = make_event();
  cudaGraph_t graph_ = nullptr;
  int* number_ = nullptr;
};

TEST_F(Capture, RunsWhatWasCapturedAtEachLaunchAndNotBefore) {
  begin();
  TRIVET_LAUNCH(add_to, 1, 1, 0, main_.get(), number_, 1);
  fork();
  join();
  TRIVET_LAUNCH(add_to, 1, 1, 0, main_.get(), number_, 100);
  CUDA_CHECK(end());
  CUDA_CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(*number_, 0);
  cudaGraphExec_t executable = nullptr;
  CUDA_CHECK(cudaGraphInstantiate(&executable, graph_));
  CUDA_CHECK(cudaGraphDestroy(graph_));
  for (int i = 0; i < 3; ++i) CUDA_CHECK(cudaGraphLaunch(executable, main_.get()));
  CUDA_CHECK(cudaStreamSynchronize(main_.get()));
  CUDA_CHECK(cudaGraphExecDestroy(executable));
  EXPECT_EQ(*number_, 333);
}

TEST_F(Capture, StreamsMustJoinAgain) {
  begin();
  fork();
  EXPECT_EQ(end(), cudaErrorStreamCaptureUnjoined);
  cudaGetLastError();
}

TEST_F(Capture, WaitingOrAllocatingEndsIt) {
  begin();
  EXPECT_EQ(cudaStreamSynchronize(main_.get()), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  begin();
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 16), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
}

TEST_F(Capture, CopiesOfPageableMemoryEndIt) {
  begin();
  int pageable = 0;
  EXPECT_EQ(cudaMemcpyAsync(number_, &pageable, sizeof(int), cudaMemcpyDefault, main_.get()),
            cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
}

TEST_F(Capture, OtherThreadsMayAllocateMeanwhileUnlessItIsGlobal) {
  const auto allocate_elsewhere = [] {
    cudaError_t error = cudaSuccess;
    std::thread([&] {
      void* data = nullptr;
      error = cudaMalloc(&data, 16);
      if (error == cudaSuccess) error = cudaFree(data);
    }).join();
    return error;
  };
  begin();
  EXPECT_EQ(allocate_elsewhere(), cudaSuccess);
  CUDA_CHECK(end());
  CUDA_CHECK(cudaGraphDestroy(graph_));
  CUDA_CHECK(cudaStreamBeginCapture(main_.get(), cudaStreamCaptureModeGlobal));
  EXPECT_EQ(allocate_elsewhere(), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(allocate_elsewhere(), cudaSuccess);
  cudaGetLastError();
}

TEST_F(Capture, OnlyItsThreadEndsIt) {
  begin();
  cudaError_t elsewhere = cudaSuccess;
  std::thread([&] { elsewhere = end(); }).join();
  EXPECT_EQ(elsewhere, cudaErrorStreamCaptureWrongThread);
  CUDA_CHECK(end());
  CUDA_CHECK(cudaGraphDestroy(graph_));
}

TEST_F(Capture, ItsEventsOrderNothingAfterIt) {
  begin();
  CUDA_CHECK(cudaEventRecord(forked_.get(), main_.get()));
  CUDA_CHECK(end());
  CUDA_CHECK(cudaGraphDestroy(graph_));
  EXPECT_EQ(cudaStreamWaitEvent(side_.get(), forked_.get()), cudaErrorStreamCaptureIsolation);
  cudaGetLastError();
}

TEST_F(Capture, EventsFromOutsideAreRefused) {
  CUDA_CHECK(cudaEventRecord(forked_.get(), side_.get()));
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(main_.get(), forked_.get()), cudaErrorStreamCaptureIsolation);
  CUDA_CHECK(end());
  CUDA_CHECK(cudaGraphDestroy(graph_));
  cudaGetLastError();
}

TEST_F(Capture, EventsOfACaptureCannotBeWaitedForOutside) {
  begin();
  CUDA_CHECK(cudaEventRecord(forked_.get(), main_.get()));
  EXPECT_EQ(cudaEventSynchronize(forked_.get()), cudaErrorCapturedEvent);
  CUDA_CHECK(end());
  CUDA_CHECK(cudaGraphDestroy(graph_));
  cudaGetLastError();
}

TEST(HostFunctions, MayNotCallTheRuntime) {
  cudaError_t seen = cudaSuccess;
  CUDA_CHECK(cudaLaunchHostFunc(
      nullptr, [](void* error) { *static_cast<cudaError_t*>(error) = cudaDeviceSynchronize(); }, &seen));
  CUDA_CHECK(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(seen, cudaErrorNotPermitted);
}

TEST(Events, MeasureTime) {
  cudaEvent_t start = nullptr, end = nullptr;
  CUDA_CHECK(cudaEventCreate(&start));
  CUDA_CHECK(cudaEventCreate(&end));
  const EventHandle start_owner(start), end_owner(end);
  using Clock = std::chrono::steady_clock;
  const auto milliseconds = [](Clock::duration time) { return std::chrono::duration<float, std::milli>(time).count(); };
  // The stream is held between the two events for at least 20 ms.
  const Clock::time_point before = Clock::now();
  CUDA_CHECK(cudaEventRecord(start));
  Gate gate(nullptr);
  CUDA_CHECK(cudaEventRecord(end));
  CUDA_CHECK(cudaEventSynchronize(start));
  float elapsed = -1;
  EXPECT_EQ(cudaEventElapsedTime(&elapsed, start, end), cudaErrorNotReady);
  cudaGetLastError();
  const Clock::time_point held = Clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const float closed = milliseconds(Clock::now() - held);
  gate.open();
  CUDA_CHECK(cudaEventSynchronize(end));
  const float all = milliseconds(Clock::now() - before);
  CUDA_CHECK(cudaEventElapsedTime(&elapsed, start, end));
  EXPECT_GE(elapsed, closed);
  EXPECT_LE(elapsed, all);
  CUDA_CHECK(cudaEventElapsedTime(&elapsed, end, start));
  EXPECT_LE(elapsed, -closed);
}

}  // namespace
}  // namespace trivet::cuda::graph_test
