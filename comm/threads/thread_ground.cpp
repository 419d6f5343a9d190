#include "comm/threads/thread_ground.h"

#include <cstring>
#include <new>

namespace trivet::comm {

std::shared_ptr<std::byte> allocate_board(int64_t bytes) {
  constexpr std::align_val_t kPage{4096};
  auto* memory = static_cast<std::byte*>(::operator new(static_cast<size_t>(bytes), kPage));
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return {memory, [](std::byte* data) { ::operator delete(data, kPage); }};
}

std::shared_ptr<std::byte> ThreadGround::found(int64_t bytes, uint64_t& token) {
  auto memory = allocate_board(bytes);
  token = reinterpret_cast<uint64_t>(memory.get());
  std::lock_guard lock(mutex_);
  founded_[token] = memory;
  return memory;
}

std::shared_ptr<std::byte> ThreadGround::join(uint64_t token, int64_t) {
  std::lock_guard lock(mutex_);
  return founded_.at(token);
}

void ThreadGround::all_joined(uint64_t token) {
  std::lock_guard lock(mutex_);
  founded_.erase(token);
}

}  // namespace trivet::comm
