// Stands for an operation that runs in the background. Ask with Communicator::poll, wait with Communicator::synchronize.
//
// The tensors of the operation must stay valid until synchronize() has returned. A handle that nobody waits for does not stop
// the operation.
#pragma once

#include <future>

#include "hvd/tensor.h"

namespace trivet::hvd {

// What an operation has made; `tensor` has no elements if the result is in the user's own tensor.
struct Result {
  Tensor tensor;
  std::vector<int64_t> received_splits;  // alltoall only: rows that came from each rank
};

class Handle {
 public:
  Handle() = default;  // stands for nothing
  explicit Handle(std::future<Result> result) : result_(std::move(result)) {}
  // Returns when the operation has ended, well or not; then synchronize() does not wait.
  void wait() const {
    if (result_.valid()) result_.wait();
  }

 private:
  friend class Communicator;
  std::future<Result> result_;
};

}  // namespace trivet::hvd
