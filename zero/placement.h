// Names where a rank keeps a tensor between its uses. Moving it changes no bit.
//
//   Device   memory that the rank's kernels read and write: nothing is moved
//   Host     host memory, if the device has its own memory (zero/host_side.h)
//   File     a file of the rank (zero/offload/file_store.h)
//
// On the CPU backend Device is host memory, and nothing is placed on Host.
#pragma once

#include <cstdint>
#include <memory>

#include "core/tensor_view.h"

namespace trivet::zero {

enum class Placement : uint8_t { Device, Host, File };

// A copy in flight. The object itself is copyable; an empty one is done.
class PendingCopy {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual void wait() = 0;  // blocks the caller until it is done; throws what went wrong
  };
  PendingCopy() = default;
  explicit PendingCopy(std::shared_ptr<State> state) : state_(std::move(state)) {}
  void wait() const {
    if (state_) state_->wait();
  }

 private:
  std::shared_ptr<State> state_;
};

// A flat tensor that is outside the memory that kernels reach, and the copies between it and such memory ("staging").
//
// A copy begins at a multiple of granule_elements() and ends at one, or at the end of the tensor. Its staging memory begins at
// a multiple of kStagingAlignment bytes and must not be touched until the copy is done. Two copies that overlap must not be in
// flight at the same time, unless both are reads. Thread-safe.
class StagedTensor {
 public:
  virtual ~StagedTensor() = default;
  virtual DType dtype() const = 0;
  virtual int64_t elements() const = 0;
  virtual int64_t granule_elements() const = 0;
  virtual PendingCopy read(int64_t first, TensorView to) = 0;
  virtual PendingCopy write(int64_t first, ConstTensorView from) = 0;
  // Returns the tensor itself if it is in host memory: kernels of the host (zero/host_side.h) need no copy of it. Otherwise
  // returns an absent view.
  virtual TensorView host_memory() { return {}; }
  // Returns the same tensor, staged in host memory, if this one is staged in device memory.
  virtual StagedTensor& on_host() { return *this; }
};

inline constexpr int64_t kStagingAlignment = 4096;

}  // namespace trivet::zero
