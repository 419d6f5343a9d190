// What the ranks of a world share: memory for boards, and which of their tensors another rank can reach directly.
//
// Threads reach everything. Processes reach what lies in their common segment; all else is copied through staging slots.
// One object per rank; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace trivet::comm {

class Ground {
 public:
  virtual ~Ground() = default;
  // Size of one staging slot; 0: every tensor can be reached and there are none.
  virtual int64_t slot_bytes() const = 0;
  // An address that means the same on every rank, or 0 when others cannot reach these bytes.
  virtual uint64_t publish(const void* data, int64_t bytes) const = 0;
  virtual std::byte* resolve(uint64_t address) const = 0;

  // Memory for a new group's board, zeroed: one rank founds it, the others join by the token, then the founder hears
  // all_joined.
  virtual std::shared_ptr<std::byte> found(int64_t bytes, uint64_t& token) = 0;
  virtual std::shared_ptr<std::byte> join(uint64_t token, int64_t bytes) = 0;
  virtual void all_joined(uint64_t token) = 0;
};

}  // namespace trivet::comm
