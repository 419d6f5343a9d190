// The memory that ranks of a world share: room for the boards of groups, and the tensors that other ranks can
// reach directly.
//
// Threads can reach everything. Processes can reach what is in their shared heap; everything else is copied through staging
// slots. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace trivet::comm {

class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  // Size of one staging slot; 0 if every tensor can be reached and there are no slots.
  virtual int64_t slot_bytes() const = 0;
  // An address that means the same on every rank, or 0 if others cannot reach these bytes.
  virtual uint64_t publish(const void* data, int64_t bytes) const = 0;
  virtual std::byte* resolve(uint64_t address) const = 0;

  // Zeroed memory for the board of a new group, which the other ranks find by its token: one rank creates it, the others attach
  // to it, and then the first one unlinks it: nobody can attach any more, and it lives until the last rank lets go of it.
  struct NewBoard {
    std::shared_ptr<std::byte> memory;
    uint64_t token = 0;
  };
  virtual NewBoard create_board(int64_t bytes) = 0;
  virtual std::shared_ptr<std::byte> attach_board(uint64_t token, int64_t bytes) = 0;
  virtual void unlink_board(uint64_t token) = 0;
};

// Unlinks a board when it is destroyed, whether or not the ranks have met.
class BoardName {
 public:
  BoardName(SharedMemory& memory, uint64_t token) : memory_(memory), token_(token) {}
  BoardName(const BoardName&) = delete;
  BoardName& operator=(const BoardName&) = delete;
  ~BoardName() { memory_.unlink_board(token_); }

 private:
  SharedMemory& memory_;
  uint64_t token_;
};

}  // namespace trivet::comm
