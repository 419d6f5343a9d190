// Copies between a device and host memory, in stream order. Pageable memory goes through pinned staging memory, because
// otherwise CUDA would make the host wait for the copy.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/buffer.h"

namespace trivet::kernels::cuda {

class HostCopies {
 public:
  // Allocates staging_bytes of pinned memory for each direction.
  HostCopies(int device, int64_t staging_bytes);
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  // Returns before the copy is done, but `from` is no longer read. Waits only if the staging memory is full of copies that are
  // not done.
  void to_device(const void* from, void* to, int64_t bytes, cudaStream_t stream);
  // Returns when the copy and all earlier work on the stream are done.
  void to_host(const void* from, void* to, int64_t bytes, cudaStream_t stream);
  // Copies between the device and pinned memory, in either direction, without staging and without waiting.
  static void pinned(const void* from, void* to, int64_t bytes, cudaStream_t stream);

 private:
  void wait(cudaStream_t stream);  // and free its staging memory
  // Returns a free part of to_device_, of at most `bytes` bytes, and sets `staged` to its size.
  std::byte* stage(int64_t bytes, cudaStream_t stream, int64_t& staged);

  std::unique_ptr<Allocator> allocator_;
  int64_t capacity_;
  std::byte *to_device_, *to_host_;
  int64_t used_ = 0;                 // bytes of to_device_, from its start
  std::vector<cudaStream_t> users_;  // streams whose copies are in to_device_; if empty, used_ is 0
};

}  // namespace trivet::kernels::cuda
