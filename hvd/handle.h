// Stands for an operation that runs in the background. Ask with Communicator::poll, wait with Communicator::synchronize.
//
// The tensors of the operation must stay valid as long as the handle. Wait for every handle: one that is destroyed before (when
// an exception leaves a function, for example) takes the tensors away from the operation, which then fails on all ranks.
#pragma once

#include <future>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "hvd/tensor.h"

namespace trivet::hvd {

// What an operation has made; `tensor` has no elements if the result is in the user's own tensor.
struct Result {
  Tensor tensor;
  std::vector<int64_t> received_splits;  // alltoall only: rows that came from each rank
};

// Says whether the tensors of an operation may be used. The background thread holds the mutex while it uses them.
struct InFlight {
  std::mutex mutex;
  bool abandoned = false;  // the handle is gone, and with it perhaps the memory
};

class Handle {
 public:
  Handle() = default;  // stands for nothing
  Handle(std::future<Result> result, std::shared_ptr<InFlight> in_flight)
      : result_(std::move(result)), in_flight_(std::move(in_flight)) {}
  Handle(Handle&&) noexcept = default;
  Handle& operator=(Handle&& other) noexcept {
    std::swap(result_, other.result_);
    std::swap(in_flight_, other.in_flight_);
    return *this;
  }
  // Waits only if the operation is running at this moment, on all ranks.
  ~Handle() {
    if (!in_flight_) return;
    const std::lock_guard lock(in_flight_->mutex);
    in_flight_->abandoned = true;
  }
  // Returns when the operation has ended, well or not; then synchronize() does not wait.
  void wait() const {
    if (result_.valid()) result_.wait();
  }

 private:
  friend class Communicator;
  std::future<Result> result_;
  std::shared_ptr<InFlight> in_flight_;
};

}  // namespace trivet::hvd
