#include "comm/threads/thread_memory.h"

#include <cstring>
#include <new>

namespace trivet::comm {

std::shared_ptr<std::byte> allocate_board(int64_t bytes) {
  constexpr std::align_val_t kPage{4096};
  auto* memory = static_cast<std::byte*>(::operator new(bytes, kPage));
  std::memset(memory, 0, bytes);
  return {memory, [](std::byte* data) { ::operator delete(data, kPage); }};
}

SharedMemory::NewBoard ThreadMemory::create_board(int64_t bytes) {
  auto memory = allocate_board(bytes);
  const auto token = reinterpret_cast<uint64_t>(memory.get());
  std::lock_guard lock(mutex_);
  boards_[token] = memory;
  return {std::move(memory), token};
}

std::shared_ptr<std::byte> ThreadMemory::attach_board(uint64_t token, int64_t) {
  std::lock_guard lock(mutex_);
  return boards_.at(token);
}

void ThreadMemory::unlink_board(uint64_t token) {
  std::lock_guard lock(mutex_);
  boards_.erase(token);
}

}  // namespace trivet::comm
