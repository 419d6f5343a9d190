// Memory that is allocated and released as the program decides: activations, whole copies of sharded weights, gradients in
// flight.
//
//   [ used | free | used | used | free ............ ]     first fit; free neighbours merge; blocks align to kAlignment
//
// The sequence of allocations of a step is fixed by its program, and first fit is deterministic: the planner runs the same
// sequence on an arena without memory (Device::Meta) and so knows the exact size that the real one needs. The real arena is
// created with that size and never grows; a request for more means that the plan is wrong and throws std::logic_error. One
// thread at a time. The allocator and the meter must outlive the arena.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/buffer.h"

namespace trivet {

class Arena {
 public:
  static constexpr int64_t kAlignment = 64;
  static constexpr int64_t kUnlimited = int64_t{1} << 62;

  // A planning arena: no memory, no limit.
  explicit Arena(std::string name) : name_(std::move(name)), capacity_(kUnlimited) {}
  // A real arena, which allocates all of its memory here.
  Arena(std::string name, Allocator& allocator, MemoryMeter& meter, MemoryCategory category, int64_t capacity_bytes);

  TensorView allocate(DType dtype, const Shape& shape);
  // `view` must be what allocate returned; only its data pointer is used. On a planning arena, data is a made-up address that
  // identifies the block and must not be dereferenced.
  void release(TensorView view);

  bool planning() const { return memory_.empty(); }
  int64_t capacity_bytes() const { return capacity_; }
  int64_t used_bytes() const { return used_; }
  int64_t peak_bytes() const { return peak_; }  // highest end of any block so far: the size that a real arena needs
  const std::string& name() const { return name_; }

 private:
  std::byte* base() const;
  void add_gap(int64_t offset, int64_t bytes);

  std::string name_;
  Buffer memory_;
  int64_t capacity_;
  int64_t used_ = 0, peak_ = 0;
  std::map<int64_t, int64_t> blocks_;  // offset -> bytes, used blocks only
  int64_t end_ = 0;                    // end of the last block
  // offset -> bytes, between blocks. There are few, so that an allocation among thousands of blocks is quick.
  std::map<int64_t, int64_t> gaps_;
};

// An arena tensor that is released when it goes out of scope.
class ScopedTensor {
 public:
  ScopedTensor() = default;
  ScopedTensor(Arena& arena, DType dtype, const Shape& shape) : arena_(&arena), view_(arena.allocate(dtype, shape)) {}
  ScopedTensor(ScopedTensor&& other) noexcept { *this = std::move(other); }
  ScopedTensor& operator=(ScopedTensor&& other) noexcept {
    if (this == &other) return *this;
    reset();
    arena_ = std::exchange(other.arena_, nullptr);
    view_ = std::exchange(other.view_, {});
    return *this;
  }
  ~ScopedTensor() { reset(); }

  void reset() noexcept {
    if (arena_) arena_->release(view_);
    arena_ = nullptr;
    view_ = {};
  }
  bool empty() const { return arena_ == nullptr; }
  TensorView view() const { return view_; }
  operator TensorView() const { return view_; }
  operator ConstTensorView() const { return view_; }

 private:
  Arena* arena_ = nullptr;
  TensorView view_;
};

}  // namespace trivet
