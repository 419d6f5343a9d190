// Memory shared by ranks that are processes of one host: each board has its own segment; tensors go through the board's slots,
// or are in the heap.
#pragma once

#include <string>

#include "comm/shared_memory.h"
#include "comm/shm/heap.h"

namespace trivet::comm {

class ShmMemory final : public SharedMemory {
 public:
  // Measured: with smaller slots, ranks meet too often; larger ones leave the second-level cache before the next rank reads
  // them.
  static constexpr int64_t kSlotBytes = int64_t{512} << 10;

  // Groups' segments are named `prefix` and a random number. `heap` may be null; then all tensors are staged.
  ShmMemory(std::string prefix, std::unique_ptr<ShmHeap> heap) : prefix_(std::move(prefix)), heap_(std::move(heap)) {}
  ShmHeap* heap() const { return heap_.get(); }

  int64_t slot_bytes() const override { return kSlotBytes; }
  uint64_t publish(const void* data, int64_t bytes) const override { return heap_ ? heap_->publish(data, bytes) : 0; }
  std::byte* resolve(uint64_t address) const override { return heap_->resolve(address); }

  NewBoard create_board(int64_t bytes) override;
  std::shared_ptr<std::byte> attach_board(uint64_t token, int64_t bytes) override;
  void unlink_board(uint64_t token) override;

 private:
  std::string name_of_group(uint64_t token) const;

  std::string prefix_;
  std::unique_ptr<ShmHeap> heap_;
};

}  // namespace trivet::comm
