// Memory for copies from and to staged tensors (zero/placement.h).
#pragma once

#include <vector>

#include "core/arena.h"
#include "core/stream.h"
#include "kernels/interface.h"
#include "zero/placement.h"

namespace trivet::zero {

constexpr int64_t staging_bytes(int64_t bytes) {
  return (bytes + kStagingAlignment - 1) / kStagingAlignment * kStagingAlignment;
}

inline std::byte* staging_address(void* memory) {
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory));
  return reinterpret_cast<std::byte*>(staging_bytes(address));
}

// Memory of an arena that begins at a multiple of kStagingAlignment. It is released with the object.
class StagingMemory {
 public:
  StagingMemory() = default;
  StagingMemory(Arena& arena, int64_t bytes) : memory_(arena, DType::UInt8, {staging_bytes(bytes) + kStagingAlignment}) {
    data_ = staging_address(memory_.view().data);
  }
  // `offset`: a multiple of kStagingAlignment.
  TensorView tensor(int64_t offset, DType dtype, int64_t elements) const { return {data_ + offset, dtype, {elements}}; }

 private:
  ScopedTensor memory_;
  std::byte* data_ = nullptr;
};

// Brings weights from files to gathers, through a few buffers that are used in turn: the next part is read while the current
// one is gathered.
//
//   caller  | read 0 -> buffer 0 | read 1 -> buffer 1 | ... waits until buffer 0 is free | read n -> buffer 0 |
//   stream  |      | copy of 0, gather of 0 | copy of 1, gather of 1 | ...
//
// If the device has its own memory, the buffers are page-locked host memory. Only one thread may call read(). The stream's work
// must be done before the ring is destroyed; the tensors and the meter must outlive it.
class StagingRing {
 public:
  StagingRing(Allocator& allocator, MemoryMeter& meter, int64_t buffers, int64_t buffer_bytes);
  ~StagingRing();
  // Copies all of `from` to `to` on the stream. Reading starts at once, in pieces of at most one buffer.
  void read(StagedTensor& from, TensorView to, Stream& stream, kernels::Kernels& kernels);

 private:
  struct Slot {
    void* memory = nullptr;
    PendingCopy read;
    Event copied;
  };
  Buffer memory_;
  int64_t slot_bytes_;
  std::vector<Slot> slots_;
  size_t next_ = 0;
};

// Reads elements of a staged tensor into host memory, for work that is not part of a step: saving and exporting.
class StagedTensorReader {
 public:
  // Returns the elements [first, first + count); they are valid until the next call.
  ConstTensorView read(StagedTensor& tensor, int64_t first, int64_t count);

 private:
  MemoryMeter meter_;
  Buffer memory_;
};

}  // namespace trivet::zero
