// Owned memory of one tensor, reported to a MemoryMeter under a category. Move-only.
//
// The Allocator decides where the bytes come from: host memory (page-aligned, zeroed lazily by the system), a device, or
// nothing at all (Meta: the view has a shape and no data). The allocator and the meter must outlive the buffer.
#pragma once

#include <cstdint>
#include <utility>

#include "core/device.h"
#include "core/memory.h"
#include "core/tensor_view.h"

namespace trivet {

class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual Device device() const = 0;
  virtual void* allocate(int64_t bytes) = 0;  // throws OutOfMemoryError; the memory reads as zero
  virtual void release(void* data, int64_t bytes) noexcept = 0;
};

Allocator& host_allocator();  // stateless
Allocator& meta_allocator();  // stateless; returns null

class Buffer {
 public:
  Buffer() = default;
  Buffer(Allocator& allocator, MemoryMeter& meter, MemoryCategory category, DType dtype, const Shape& shape);
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { reset(); }

  void reset() noexcept;
  bool empty() const { return allocator_ == nullptr; }
  TensorView view() { return view_; }
  ConstTensorView view() const { return view_; }

 private:
  Allocator* allocator_ = nullptr;
  MemoryMeter* meter_ = nullptr;
  MemoryCategory category_ = MemoryCategory::Buffers;
  TensorView view_;
};

}  // namespace trivet
