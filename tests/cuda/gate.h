// Holds a stream at a point until the gate is opened: work that the stream is given after the gate cannot run before that. So a
// test of an order does not depend on which side is faster.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <latch>
#include <memory>
#include <thread>

#include "core/cuda/error.h"

namespace trivet::cuda {

class Gate {
 public:
  explicit Gate(cudaStream_t stream) {
    // The stream may wake up after the gate is gone.
    const auto wait = [](void* data) {
      const std::unique_ptr<std::shared_ptr<std::latch>> latch(static_cast<std::shared_ptr<std::latch>*>(data));
      (*latch)->wait();
    };
    CUDA_CHECK(cudaLaunchHostFunc(stream, wait, new std::shared_ptr<std::latch>(latch_)));
  }
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open() {
    if (!latch_->try_wait()) latch_->count_down();
  }

 private:
  std::shared_ptr<std::latch> latch_ = std::make_shared<std::latch>(1);
};

// Returns whether the stream still has work after 30 ms, in which it would have done everything that it may do.
inline bool stays_busy(cudaStream_t stream) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
  while (std::chrono::steady_clock::now() < end) {
    if (cudaStreamQuery(stream) == cudaSuccess) return false;
    cudaGetLastError();  // "not ready" is recorded as an error
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace trivet::cuda
