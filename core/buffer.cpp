#include "core/buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include "core/error.h"

namespace trivet {
namespace {

class HostAllocator final : public Allocator {
 public:
  Device device() const override { return Device::Cpu; }
  void* allocate(int64_t bytes) override {
    if (bytes == 0) return nullptr;
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
      throw OutOfMemoryError(
          fmt::format("host memory: the system refused to allocate {:.1f} MiB; use fewer ranks on this host, a higher "
                      "ZeRO stage or a smaller micro-batch, or raise the memory limit (ulimit -v, cgroup)",
                      static_cast<double>(bytes) / (1 << 20)));
    if (bytes >= (int64_t{4} << 20)) madvise(data, bytes, MADV_HUGEPAGE);
    return data;
  }
  void release(void* data, int64_t bytes) noexcept override {
    if (data) munmap(data, bytes);
  }
};

class MetaAllocator final : public Allocator {
 public:
  Device device() const override { return Device::Meta; }
  void* allocate(int64_t) override { return nullptr; }
  void release(void*, int64_t) noexcept override {}
};

}  // namespace

Allocator& host_allocator() {
  static HostAllocator allocator;
  return allocator;
}

Allocator& meta_allocator() {
  static MetaAllocator allocator;
  return allocator;
}

Buffer::Buffer(Allocator& allocator, MemoryMeter& meter, MemoryCategory category, DType dtype, const Shape& shape)
    : allocator_(&allocator), meter_(&meter), category_(category), view_{nullptr, dtype, shape} {
  view_.data = allocator.allocate(view_.bytes());
  meter.add(category, view_.bytes());
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  reset();
  allocator_ = std::exchange(other.allocator_, nullptr);
  meter_ = other.meter_;
  category_ = other.category_;
  view_ = std::exchange(other.view_, {});
  return *this;
}

void Buffer::reset() noexcept {
  if (!allocator_) return;
  allocator_->release(view_.data, view_.bytes());
  meter_->remove(category_, view_.bytes());
  allocator_ = nullptr;
  view_ = {};
}

}  // namespace trivet
