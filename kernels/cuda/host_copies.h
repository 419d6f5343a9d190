// Copies between a device and host memory, in stream order. Pageable memory goes through pinned staging, because CUDA would
// make the host wait for such a copy.
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
  // Pinned memory: staging_bytes for each direction.
  HostCopies(int device, int64_t staging_bytes);
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  // Returns before the copy is done, but `from` is not read any more. Waits only when the staging memory is full of copies that
  // are not done.
  void to_device(const void* from, void* to, int64_t bytes, cudaStream_t stream);
  // Returns when the copy, and all that the stream was given before, is done.
  void to_host(const void* from, void* to, int64_t bytes, cudaStream_t stream);
  // Either way between the device and pinned memory: no staging, nobody waits.
  static void pinned(const void* from, void* to, int64_t bytes, cudaStream_t stream);

 private:
  void wait(cudaStream_t stream);  // and give its staging memory back
  // A free part of the staging memory to the device, of at most `bytes` bytes; `staged`: of how many.
  std::byte* stage(int64_t bytes, cudaStream_t stream, int64_t& staged);

  std::unique_ptr<Allocator> allocator_;
  int64_t capacity_;
  std::byte *to_device_, *to_host_;
  int64_t used_ = 0;                 // of to_device_, from its start
  std::vector<cudaStream_t> users_;  // whose copies are there; none: used_ is 0
};

}  // namespace trivet::kernels::cuda
