// Device memory, pinned memory, copies.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime.h"

namespace cuda_shim {
namespace {

// Device memory begins at multiples of 256; the guard bytes before and after it must not change.
constexpr size_t kGuard = 256;
constexpr unsigned char kGuardByte = 0xA5;

size_t rounded(size_t bytes) { return (bytes + kGuard - 1) / kGuard * kGuard; }

struct Block {
  unsigned char* data;
  size_t bytes;
  unsigned char* memory() const { return data - kGuard; }
  size_t behind() const { return rounded(bytes) - bytes + kGuard; }

  void make_guards() const {
    std::memset(memory(), kGuardByte, kGuard);
    std::memset(data + bytes, kGuardByte, behind());
#if defined(__SANITIZE_ADDRESS__)
    __asan_poison_memory_region(memory(), kGuard);
    __asan_poison_memory_region(data + bytes, behind());
#endif
  }
  void check_guards() const {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(memory(), kGuard + bytes + behind());
#endif
    for (size_t i = 0; i < kGuard; ++i) check(memory() + i);
    for (size_t i = 0; i < behind(); ++i) check(data + bytes + i);
  }

 private:
  void check(const unsigned char* at) const {
    if (*at == kGuardByte) return;
    std::fprintf(stderr, "cuda shim: byte %td of an allocation of %zu bytes was written\n", at - data, bytes);
    std::abort();
  }
};

// Memory that is to be protected has pages of its own, so that access to it can be taken away. Returns null if there is no
// memory.
void* take_memory(size_t bytes, bool pages) {
  void* memory = nullptr;
  if (!pages) return posix_memalign(&memory, kGuard, bytes) == 0 ? memory : nullptr;
  memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void* allocate(size_t bytes, bool pages) {
  void* memory = take_memory(rounded(bytes) + 2 * kGuard, pages);
  if (!memory) return nullptr;
  const Block block{static_cast<unsigned char*>(memory) + kGuard, bytes};
  std::memset(block.data, 0xFF, bytes);
  block.make_guards();
  return block.data;
}

void set_access(uintptr_t data, const Allocation& allocation, int access) {
  if (allocation.pages) mprotect(reinterpret_cast<void*>(data - kGuard), rounded(allocation.bytes) + 2 * kGuard, access);
}

// The allocation that contains `data`, and the number of bytes from `data` to its end. The caller holds the lock.
struct Found {
  const Allocation* allocation = nullptr;
  size_t bytes_left = 0;
};
Found find(const void* data) {
  const auto& all = runtime().allocations;
  const auto address = reinterpret_cast<uintptr_t>(data);
  auto next = all.upper_bound(address);
  if (next == all.begin()) return {};
  const auto& [start, allocation] = *--next;
  if (address >= start + allocation.bytes) return {};
  return {&allocation, start + allocation.bytes - address};
}

bool on_device(const Found& found) { return found.allocation && found.allocation->device >= 0; }

bool only_for_streams(const Allocation& allocation) { return !allocation.managed || runtime().managed_is_hidden; }

cudaError_t add(void** data, size_t bytes, int device, bool managed = false) {
  *data = nullptr;
  if (const cudaError_t error = refuse_in_capture()) return error;
  if (bytes == 0) return cudaSuccess;
  const Locked lock;
  if (device >= 0) {
    int64_t& allocated = runtime().devices[device].allocated_bytes;
    const int64_t free_bytes = runtime().configuration.memory_bytes - allocated;
    if (bytes > static_cast<size_t>(free_bytes > 0 ? free_bytes : 0)) return cudaErrorMemoryAllocation;
    allocated += static_cast<int64_t>(rounded(bytes));
  } else if (static_cast<int64_t>(bytes) > runtime().configuration.pinned_bytes) {
    return cudaErrorMemoryAllocation;
  }
  const bool pages = device >= 0 && runtime().configuration.protect;
  *data = allocate(bytes, pages);
  if (!*data) return cudaErrorMemoryAllocation;
  const auto address = reinterpret_cast<uintptr_t>(*data);
  const Allocation& allocation = runtime().allocations[address] = {bytes, device, pages, managed};
  if (runtime().streams_working == 0 && only_for_streams(allocation)) set_access(address, allocation, PROT_NONE);
  ++runtime().counts.allocations;
  return cudaSuccess;
}

cudaError_t remove(void* data, bool device_memory) {
  const Locked lock;
  const auto found = runtime().allocations.find(reinterpret_cast<uintptr_t>(data));
  if (found == runtime().allocations.end() || (found->second.device >= 0) != device_memory) return cudaErrorInvalidValue;
  if (device_memory)
    runtime().devices[found->second.device].allocated_bytes -= static_cast<int64_t>(rounded(found->second.bytes));
  const Block block{static_cast<unsigned char*>(data), found->second.bytes};
  set_access(found->first, found->second, PROT_READ | PROT_WRITE);
  block.check_guards();
  if (found->second.pages) {
    munmap(block.memory(), rounded(block.bytes) + 2 * kGuard);
  } else {
    std::free(block.memory());
  }
  runtime().allocations.erase(found);
  return cudaSuccess;
}

// Checks that a copy's direction and bounds fit the memory. The caller holds the lock.
cudaError_t check_copy(const Found& to, const Found& from, size_t bytes, cudaMemcpyKind kind) {
  if (kind != cudaMemcpyDefault) {
    if (on_device(to) != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice)) return cudaErrorInvalidValue;
    if (on_device(from) != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice)) return cudaErrorInvalidValue;
  }
  const bool inside = (!to.allocation || bytes <= to.bytes_left) && (!from.allocation || bytes <= from.bytes_left);
  return inside ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream, bool wait) {
  if (bytes == 0) return cudaSuccess;
  if (wait)
    if (const cudaError_t error = refuse_in_capture()) return error;
  bool to_pageable = false, from_pageable = false;
  {
    const Locked lock;
    const Found target = find(to), source = find(from);
    if (const cudaError_t error = check_copy(target, source, bytes, kind)) return error;
    to_pageable = !target.allocation;
    from_pageable = !source.allocation;
  }
  if (stream->capture && (to_pageable || from_pageable)) {
    stream->capture->valid = false;
    return cudaErrorStreamCaptureUnsupported;
  }
  if (!wait && (to_pageable || from_pageable)) ++runtime().counts.pageable_copies;
  if (from_pageable) {  // the bytes are taken during the call
    auto staged = std::make_shared<std::vector<unsigned char>>(bytes);
    std::memcpy(staged->data(), from, bytes);
    stream->enqueue([to, bytes, staged = std::move(staged)] { std::memcpy(to, staged->data(), bytes); });
  } else {
    stream->enqueue([=] { std::memmove(to, from, bytes); });
  }
  return wait || to_pageable ? wait_for(*stream) : cudaSuccess;
}

cudaError_t set(void* data, int value, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  {
    const Locked lock;
    const Found found = find(data);
    if (!found.allocation || bytes > found.bytes_left) return cudaErrorInvalidValue;
  }
  stream->enqueue([=] { std::memset(data, value, bytes); });
  return cudaSuccess;
}

}  // namespace

StreamWork::StreamWork() {
  const Locked lock;
  if (runtime().streams_working++ > 0) return;
  for (const auto& [data, allocation] : runtime().allocations) set_access(data, allocation, PROT_READ | PROT_WRITE);
}
StreamWork::~StreamWork() {
  const Locked lock;
  if (--runtime().streams_working > 0) return;
  for (const auto& [data, allocation] : runtime().allocations)
    if (only_for_streams(allocation)) set_access(data, allocation, PROT_NONE);
}

void hide_managed_memory(bool hidden) {
  const Locked lock;
  runtime().managed_is_hidden = hidden;
  if (runtime().streams_working > 0) return;
  for (const auto& [data, allocation] : runtime().allocations)
    if (allocation.managed) set_access(data, allocation, hidden ? PROT_NONE : PROT_READ | PROT_WRITE);
}

}  // namespace cuda_shim

using cuda_shim::call;
using cuda_shim::runtime;

cudaError_t cudaMalloc(void** data, size_t bytes) {
  return call([&] { return cuda_shim::add(data, bytes, cuda_shim::current_device()); });
}

cudaError_t cudaMallocManaged(void** data, size_t bytes, unsigned) {
  return call([&] { return cuda_shim::add(data, bytes, cuda_shim::current_device(), true); });
}

cudaError_t cudaFree(void* data) {
  return call([&] {
    if (!data) return cudaSuccess;
    if (const cudaError_t error = cuda_shim::refuse_in_capture()) return error;
    cuda_shim::wait_for_all_streams(cuda_shim::current_device());
    return cuda_shim::remove(data, true);
  });
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return call([&] { return cuda_shim::add(data, bytes, -1); });
}
cudaError_t cudaMallocHost(void** data, size_t bytes) { return cudaHostAlloc(data, bytes, cudaHostAllocDefault); }

cudaError_t cudaFreeHost(void* data) {
  return call([&] {
    if (!data) return cudaSuccess;
    if (const cudaError_t error = cuda_shim::refuse_in_capture()) return error;
    cuda_shim::wait_for_all_streams(cuda_shim::current_device());
    return cuda_shim::remove(data, false);
  });
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return call([&] {
    const cuda_shim::Locked lock;
    const int64_t total = runtime().configuration.memory_bytes;
    const int64_t used = runtime().devices[cuda_shim::current_device()].allocated_bytes;
    *total_bytes = static_cast<size_t>(total);
    *free_bytes = static_cast<size_t>(used < total ? total - used : 0);
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  return call([&] {
    const cuda_shim::Locked lock;
    const auto found = cuda_shim::find(data);
    void* const pointer = const_cast<void*>(data);
    if (!found.allocation) {
      *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, pointer};
    } else if (found.allocation->device < 0) {
      *attributes = {cudaMemoryTypeHost, cuda_shim::current_device(), pointer, pointer};
    } else {
      *attributes = {cudaMemoryTypeDevice, found.allocation->device, pointer, nullptr};
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return call([&] { return cuda_shim::copy(to, from, bytes, kind, cuda_shim::resolve(nullptr), true); });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return call([&] { return cuda_shim::copy(to, from, bytes, kind, cuda_shim::resolve(stream), false); });
}
cudaError_t cudaMemset(void* data, int value, size_t bytes) { return cudaMemsetAsync(data, value, bytes, nullptr); }
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  return call([&] { return cuda_shim::set(data, value, bytes, cuda_shim::resolve(stream)); });
}
