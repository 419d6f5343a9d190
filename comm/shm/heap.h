// Allocates tensors in memory that all processes of the world map. Operations on them need no staging, because the other ranks
// read and write them in place. Meant for the flat buffers that are communicated every step.
//
//   one sparse file without a name: [ region of rank 0 | region of rank 1 | ... ]      address: offset in the file + 1
//
// Each rank allocates in its own region; pages are reserved on allocation and returned to the system on release. The other
// ranks find the file through /proc/<pid of rank 0>/fd, so nothing can be left behind, and the size of /dev/shm does not
// matter. Thread-safe. Must outlive its allocations.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "core/buffer.h"

namespace trivet::comm {

class ShmHeap final : public Allocator {
 public:
  static constexpr int64_t kRegionBytes = int64_t{64} << 30;  // address space; only allocations use memory

  // Null if the system does not let this process create, find or map the file.
  static std::unique_ptr<ShmHeap> create(int ranks);
  static std::unique_ptr<ShmHeap> attach(const std::string& path, int rank, int ranks);
  ~ShmHeap() override;
  // Where other ranks find the file while this process lives.
  std::string path() const;

  Device device() const override { return Device::Cpu; }
  void* allocate(int64_t bytes) override;
  void release(void* data, int64_t bytes) noexcept override;

  // 0 if the bytes are not in the heap.
  uint64_t publish(const void* data, int64_t bytes) const;
  std::byte* resolve(uint64_t address) const { return base_ + (address - 1); }

 private:
  ShmHeap(int descriptor, std::byte* base, int rank, int ranks)
      : descriptor_(descriptor), base_(base), region_(rank * kRegionBytes), total_(ranks * kRegionBytes) {}
  static std::unique_ptr<ShmHeap> map(int descriptor, int rank, int ranks);

  int descriptor_;
  std::byte* base_;
  int64_t region_, total_;
  std::mutex mutex_;
  std::map<int64_t, int64_t> blocks_;  // offset in the file -> bytes, used blocks only
};

}  // namespace trivet::comm
