// Where a tensor of a rank lies between its uses. Moving it changes no bit.
//
//   Device   memory that the rank's kernels read and write: nothing is moved
//   Host     host memory beside a device that has its own (zero/host_side.h)
//   File     a file of the rank (zero/offload/file_store.h)
//
// On the CPU backend Device is host memory, and nothing is placed on Host.
#pragma once

#include <cstdint>
#include <memory>

#include "core/tensor_view.h"

namespace trivet::zero {

enum class Placement : uint8_t { Device, Host, File };

// A copy under way. Copyable; an empty one is done.
class Transfer {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual void wait() = 0;  // blocks the caller until it is done; throws what went wrong
  };
  Transfer() = default;
  explicit Transfer(std::shared_ptr<State> state) : state_(std::move(state)) {}
  void wait() const {
    if (state_) state_->wait();
  }

 private:
  std::shared_ptr<State> state_;
};

// A flat tensor that is not in memory that kernels reach, and the copies between it and such memory ("staging").
//
// A copy begins at a multiple of granule_elements() and ends at one, or at the end of the tensor; staging begins at a multiple
// of kStagingAlignment bytes. It must stay as it is until the transfer is done. Copies that overlap must not be under way
// together, unless both are reads. Thread-safe.
class TensorPlace {
 public:
  virtual ~TensorPlace() = default;
  virtual DType dtype() const = 0;
  virtual int64_t elements() const = 0;
  virtual int64_t granule_elements() const = 0;
  virtual Transfer read(int64_t first, TensorView to) = 0;
  virtual Transfer write(int64_t first, ConstTensorView from) = 0;
  // The tensor itself where it is host memory: kernels of the host (zero/host_side.h) need no copy of it. Absent elsewhere.
  virtual TensorView host_memory() { return {}; }
  // The place whose staging is host memory, where this one's is the device's.
  virtual TensorPlace& on_host() { return *this; }
};

inline constexpr int64_t kStagingAlignment = 4096;

}  // namespace trivet::zero
