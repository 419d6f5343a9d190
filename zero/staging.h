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

// Memory of an arena that begins at a multiple of kStagingAlignment, for as long as the object lives.
class StagingMemory {
 public:
  StagingMemory() = default;
  StagingMemory(Arena& arena, int64_t bytes) : memory_(arena, DType::UInt8, {staging_bytes(bytes) + kStagingAlignment}) {
    auto address = reinterpret_cast<uintptr_t>(memory_.view().data);
    address = (address + kStagingAlignment - 1) / kStagingAlignment * kStagingAlignment;
    data_ = reinterpret_cast<std::byte*>(address);
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
// One thread calls read(). The stream's work must be done before it is destroyed, the places and the meter outlive it.
class StagingRing {
 public:
  StagingRing(Allocator& allocator, MemoryMeter& meter, int64_t buffers, int64_t buffer_bytes);
  ~StagingRing();
  // On the stream, all of `from` is copied to `to`. It is read from now on, in pieces of at most a buffer.
  void read(TensorPlace& from, TensorView to, Stream& stream, kernels::Kernels& kernels);

 private:
  struct Slot {
    Buffer memory;
    Transfer transfer;
    Event copied;
  };
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
