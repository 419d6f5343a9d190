// Temporary memory of a thread. It keeps its size from call to call, so that nothing is allocated in the steady state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace trivet::kernels::cpu {

class Scratch {
 public:
  static constexpr std::align_val_t kAlignment{64};

  // Returns at least `bytes` bytes with unspecified contents, valid until the next call.
  void* reserve(int64_t bytes) {
    if (bytes > capacity_) {
      memory_.reset();
      capacity_ = 0;
      memory_.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
      capacity_ = bytes;
    }
    return memory_.get();
  }
  template <typename T>
  T* reserve_elements(int64_t count) {
    return static_cast<T*>(reserve(count * static_cast<int64_t>(sizeof(T))));
  }
  int64_t capacity() const { return capacity_; }

 private:
  struct Release {
    void operator()(std::byte* memory) const noexcept { ::operator delete(memory, kAlignment); }
  };
  std::unique_ptr<std::byte, Release> memory_;
  int64_t capacity_ = 0;
};

}  // namespace trivet::kernels::cpu
