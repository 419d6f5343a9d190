// Memory shared by ranks that are threads of one process: every tensor can be reached, and boards are on the heap.
#pragma once

#include <map>
#include <mutex>

#include "comm/shared_memory.h"

namespace trivet::comm {

// Returns zeroed, page-aligned memory.
std::shared_ptr<std::byte> allocate_board(int64_t bytes);

class ThreadMemory final : public SharedMemory {  // one object for all ranks
 public:
  int64_t slot_bytes() const override { return 0; }
  uint64_t publish(const void* data, int64_t) const override { return reinterpret_cast<uint64_t>(data); }
  std::byte* resolve(uint64_t address) const override { return reinterpret_cast<std::byte*>(address); }

  NewBoard create_board(int64_t bytes) override;
  std::shared_ptr<std::byte> attach_board(uint64_t token, int64_t bytes) override;
  void unlink_board(uint64_t token) override;

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<std::byte>> boards_;  // by token, until they are unlinked
};

}  // namespace trivet::comm
