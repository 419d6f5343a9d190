// Stands for an operation that runs in the background. Ask with Communicator::poll, wait with Communicator::synchronize.
//
// The tensors of the operation must stay valid as long as the handle. Wait for every handle: one that is destroyed before (when
// an exception leaves a function, for example) takes the tensors away from the operation, which ends the job: all
// ranks get a CommError.
#pragma once

#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "hvd/tensor.h"

namespace trivet::hvd {

// The result of an operation; `tensor` has no elements if it is in the user's own tensor.
struct Result {
  Tensor tensor;
  std::vector<int64_t> received_splits;  // alltoall only: rows that came from each rank
};

// Says whether the tensors of an operation may be used, and waits while they are used. (A mutex that is held meanwhile would
// do, but ThreadSanitizer ends a program in which a thread holds more than 64, and many tensors can be fused.)
class InFlight {
 public:
  // The background thread has one while it uses the tensors.
  class Use {
   public:
    explicit Use(std::shared_ptr<InFlight> of) : of_(std::move(of)), granted_(of_->begin()) {}
    Use(Use&&) noexcept = default;
    Use& operator=(Use&&) = delete;
    ~Use() {
      if (of_ && granted_) of_->end();
    }
    bool granted() const { return granted_; }

   private:
    std::shared_ptr<InFlight> of_;
    bool granted_;
  };

  // The handle is gone, and with it perhaps the memory. Waits if the tensors are used at this moment.
  void abandon() {
    std::unique_lock lock(mutex_);
    abandoned_ = true;
    changed_.wait(lock, [&] { return !in_use_; });
  }

 private:
  bool begin() {
    const std::lock_guard lock(mutex_);
    in_use_ = !abandoned_;
    return in_use_;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    in_use_ = false;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool in_use_ = false, abandoned_ = false;
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
    if (in_flight_) in_flight_->abandon();
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
