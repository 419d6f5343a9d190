#include "kernels/cuda/host_copies.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/cuda/error.h"
#include "core/cuda/memory.h"

namespace trivet::kernels::cuda {
namespace {

bool is_pinned(const void* memory) {
  cudaPointerAttributes attributes{};
  CUDA_CHECK(cudaPointerGetAttributes(&attributes, memory));
  return attributes.type == cudaMemoryTypeHost;
}

void copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream));
}

}  // namespace

HostCopies::HostCopies(int device, int64_t staging_bytes)
    : allocator_(trivet::cuda::make_pinned_allocator(device)), capacity_(staging_bytes) {
  if (capacity_ <= 0)
    throw std::logic_error("host copies: staging_bytes is " + std::to_string(capacity_) + "; it must be positive");
  to_device_ = static_cast<std::byte*>(allocator_->allocate(2 * capacity_));
  to_host_ = to_device_ + capacity_;
}

HostCopies::~HostCopies() { allocator_->release(to_device_, 2 * capacity_); }

void HostCopies::wait(cudaStream_t stream) {
  CUDA_CHECK(cudaStreamSynchronize(stream));
  std::erase(users_, stream);
  if (users_.empty()) used_ = 0;
}

std::byte* HostCopies::stage(int64_t bytes, cudaStream_t stream, int64_t& staged) {
  while (used_ == capacity_) wait(users_.back());
  staged = std::min(bytes, capacity_ - used_);
  std::byte* place = to_device_ + used_;
  used_ += staged;
  if (std::find(users_.begin(), users_.end(), stream) == users_.end()) users_.push_back(stream);
  return place;
}

void HostCopies::to_device(const void* from, void* to, int64_t bytes, cudaStream_t stream) {
  for (int64_t done = 0, staged = 0; done < bytes; done += staged) {
    std::byte* place = stage(bytes - done, stream, staged);
    std::memcpy(place, static_cast<const std::byte*>(from) + done, static_cast<size_t>(staged));
    copy(static_cast<std::byte*>(to) + done, place, staged, cudaMemcpyHostToDevice, stream);
  }
}

void HostCopies::pinned(const void* from, void* to, int64_t bytes, cudaStream_t stream) {
  if (bytes > 0) copy(to, from, bytes, cudaMemcpyDefault, stream);
}

void HostCopies::to_host(const void* from, void* to, int64_t bytes, cudaStream_t stream) {
  const bool direct = bytes > 0 && is_pinned(to);
  if (direct) copy(to, from, bytes, cudaMemcpyDeviceToHost, stream);
  if (direct || bytes == 0) return wait(stream);
  for (int64_t done = 0; done < bytes; done += capacity_) {
    const int64_t part = std::min(bytes - done, capacity_);
    copy(to_host_, static_cast<const std::byte*>(from) + done, part, cudaMemcpyDeviceToHost, stream);
    wait(stream);
    std::memcpy(static_cast<std::byte*>(to) + done, to_host_, static_cast<size_t>(part));
  }
}

}  // namespace trivet::kernels::cuda
