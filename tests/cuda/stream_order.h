// A fixture for tests of streams: a rank's streams, two side streams, and kernels that store numbers.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "core/cuda/launch.h"
#include "core/cuda/memory.h"
#include "core/cuda/streams.h"
#include "tests/cuda/gate.h"

namespace trivet::cuda {
namespace {  // kernels cannot be inline

__global__ void store(int* out, int value) { *out = value; }
__global__ void copy_one(const int* from, int* out) { *out = *from; }

class StreamOrder : public testing::Test {
 protected:
  StreamOrder() {
    const auto allocator = make_pinned_allocator(0);
    numbers_ = static_cast<int*>(allocator->allocate(64 * sizeof(int)));
  }
  ~StreamOrder() override { make_pinned_allocator(0)->release(numbers_, 64 * sizeof(int)); }

  // These run on the current stream. Numbers are in pinned memory, which the host may read once it has waited.
  void launch_store(int place, int value) { TRIVET_LAUNCH(store, 1, 1, 0, streams_.current(), numbers_ + place, value); }
  void launch_copy(int from, int to) { TRIVET_LAUNCH(copy_one, 1, 1, 0, streams_.current(), numbers_ + from, numbers_ + to); }
  // The CUDA stream that work enqueued on `stream` goes to.
  cudaStream_t handle_of(Stream& stream) {
    cudaStream_t handle = nullptr;
    stream.enqueue([&] { handle = streams_.current(); });
    return handle;
  }

  Streams streams_{0};
  std::unique_ptr<Stream> side_ = streams_.make_stream(1), other_ = streams_.make_stream(1);
  int* numbers_ = nullptr;
};

}  // namespace
}  // namespace trivet::cuda
