// Tensors in memory that all processes of the world map, so that operations on them need no staging: the other ranks read and
// write them where they are. Meant for the flat buffers that are communicated every step.
//
//   one file without a name, sparse: [ region of rank 0 | region of rank 1 | ... ]     addresses: offset in the file + 1
//
// Each rank allocates in its own region; pages are reserved when they are allocated and given back when they are released. The
// file is found through /proc/<pid of rank 0>/fd: nothing can be left behind, and the size of /dev/shm does not matter.
// Thread-safe. Must outlive what was allocated.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "core/buffer.h"

namespace trivet::comm {

class ShmHeap final : public Allocator {
 public:
  static constexpr int64_t kRegionBytes = int64_t{64} << 30;  // address space; memory is what is allocated

  // Null when the system does not let this process make, find or map it.
  static std::unique_ptr<ShmHeap> create(int ranks);
  static std::unique_ptr<ShmHeap> attach(const std::string& path, int rank, int ranks);
  ~ShmHeap() override;
  // Where the others find it while this process lives.
  std::string path() const;

  Device device() const override { return Device::Cpu; }
  void* allocate(int64_t bytes) override;
  void release(void* data, int64_t bytes) noexcept override;

  // 0 when the bytes lie elsewhere.
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
  std::map<int64_t, int64_t> blocks_;  // offset in the file -> bytes, used ones only
};

}  // namespace trivet::comm
