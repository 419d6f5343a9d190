#include "comm/shm/heap.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/error.h"

namespace trivet::comm {
namespace {

constexpr int64_t kHeapPage = 4096;

int64_t whole_pages(int64_t bytes) { return (bytes + kHeapPage - 1) / kHeapPage * kHeapPage; }

double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

std::unique_ptr<ShmHeap> ShmHeap::create(int ranks) {
  const int descriptor = memfd_create("trivet-heap", MFD_CLOEXEC);
  if (descriptor < 0) return nullptr;
  if (ftruncate(descriptor, ranks * kRegionBytes) == 0) return map(descriptor, 0, ranks);
  ::close(descriptor);
  return nullptr;
}

std::unique_ptr<ShmHeap> ShmHeap::attach(const std::string& path, int rank, int ranks) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  return descriptor < 0 ? nullptr : map(descriptor, rank, ranks);
}

std::unique_ptr<ShmHeap> ShmHeap::map(int descriptor, int rank, int ranks) {
  const size_t size = ranks * kRegionBytes;
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  if (base != MAP_FAILED) return std::unique_ptr<ShmHeap>(new ShmHeap(descriptor, static_cast<std::byte*>(base), rank, ranks));
  ::close(descriptor);
  return nullptr;
}

ShmHeap::~ShmHeap() {
  munmap(base_, total_);
  ::close(descriptor_);
}

std::string ShmHeap::path() const { return fmt::format("/proc/{}/fd/{}", getpid(), descriptor_); }

// First fit.
void* ShmHeap::allocate(int64_t bytes) {
  if (bytes == 0) return nullptr;
  std::lock_guard lock(mutex_);
  const int64_t size = whole_pages(bytes);
  int64_t offset = region_;
  for (const auto& [begin, length] : blocks_) {
    if (begin - offset >= size) break;
    offset = begin + length;
  }
  if (offset + size > region_ + kRegionBytes)
    throw OutOfMemoryError(
        fmt::format("shared memory: {:.1f} MiB do not fit into what is left of this rank's {} GiB; use a higher "
                    "ZeRO stage or a smaller micro-batch",
                    mebibytes(bytes), kRegionBytes >> 30));
  if (fallocate(descriptor_, 0, offset, size) != 0)
    throw OutOfMemoryError(fmt::format(
        "shared memory: the system refused to allocate {:.1f} MiB; use fewer ranks on this host, a higher ZeRO stage "
        "or a smaller micro-batch, or raise the memory limit (cgroup)",
        mebibytes(bytes)));
  blocks_[offset] = size;
  return base_ + offset;
}

// The pages go back to the system, and read as zero when they are allocated again.
void ShmHeap::release(void* data, int64_t bytes) noexcept {
  if (!data) return;
  std::lock_guard lock(mutex_);
  const int64_t offset = static_cast<std::byte*>(data) - base_;
  (void)fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, whole_pages(bytes));
  blocks_.erase(offset);
}

uint64_t ShmHeap::publish(const void* data, int64_t bytes) const {
  const auto* first = static_cast<const std::byte*>(data);
  const bool inside = first >= base_ && first + bytes <= base_ + total_;
  return inside ? static_cast<uint64_t>(first - base_) + 1 : 0;
}

}  // namespace trivet::comm
