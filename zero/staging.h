// Memory for copies to and from places (zero/placement.h).
#pragma once

#include <vector>

#include "core/arena.h"
#include "core/stream.h"
#include "kernels/kernels.h"
#include "zero/placement.h"

namespace trivet::zero {

constexpr int64_t staging_bytes(int64_t bytes) {
  return (bytes + kStagingAlignment - 1) / kStagingAlignment * kStagingAlignment;
}

inline std::byte* staging_address(void* memory) {
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory));
  return reinterpret_cast<std::byte*>(staging_bytes(address));
}

// Memory of an arena that begins at a multiple of kStagingAlignment, for as long as the object lives.
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

// The way from files to gathers: a few buffers in turn, so that what is gathered next is read while this is gathered.
//
//   caller  | read 0 -> buffer 0 | read 1 -> buffer 1 | ... waits until buffer 0 is free | read n -> buffer 0 |
//   stream  |      | copy of 0, gather of 0 | copy of 1, gather of 1 | ...
//
// Beside a device with memory of its own the buffers are page-locked host memory. One thread calls read(). The stream's work
// must be done before it is destroyed, the places and the meter outlive it.
class StagingRing {
 public:
  StagingRing(Allocator& allocator, MemoryMeter& meter, int64_t buffers, int64_t buffer_bytes);
  ~StagingRing();
  // On the stream, all of `from` is copied to `to`. It is read from now on, in pieces of at most a buffer.
  void read(TensorPlace& from, TensorView to, Stream& stream, kernels::Kernels& kernels);

 private:
  struct Slot {
    void* memory = nullptr;
    Transfer transfer;
    Event copied;
  };
  Buffer memory_;
  int64_t slot_bytes_;
  std::vector<Slot> slots_;
  size_t next_ = 0;
};

// Elements of a place in host memory, for what is not part of a step: saving and exporting.
class PlaceReader {
 public:
  // The elements [first, first + count); valid until the next call.
  ConstTensorView read(TensorPlace& place, int64_t first, int64_t count);

 private:
  MemoryMeter meter_;
  Buffer memory_;
};

}  // namespace trivet::zero
