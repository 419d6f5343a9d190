// A Ground provides what the ranks of a world share: memory for boards, and the tensors that other ranks can reach directly.
//
// Threads can reach everything. Processes can reach what is in their shared heap; everything else is copied through staging
// slots. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace trivet::comm {

class Ground {
 public:
  virtual ~Ground() = default;
  // Size of one staging slot; 0 if every tensor can be reached and there are no slots.
  virtual int64_t slot_bytes() const = 0;
  // An address that means the same on every rank, or 0 if others cannot reach these bytes.
  virtual uint64_t publish(const void* data, int64_t bytes) const = 0;
  virtual std::byte* resolve(uint64_t address) const = 0;

  // Zeroed memory for a new group's board: one rank calls found(), the others call join() with the token, and then the first
  // rank calls all_joined().
  virtual std::shared_ptr<std::byte> found(int64_t bytes, uint64_t& token) = 0;
  virtual std::shared_ptr<std::byte> join(uint64_t token, int64_t bytes) = 0;
  virtual void all_joined(uint64_t token) = 0;
};

}  // namespace trivet::comm
