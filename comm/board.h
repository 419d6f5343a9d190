// Shared memory (within one process or one host) in which the ranks of a group meet: counters, headers and addresses.
//
//   [ disagreement | data lane: line per rank | control lane: line per rank | mailboxes: sender x receiver
//   | counts of all_to_all_v: sent and received, per rank | staging slots, if any ]
//
// A rank writes its own line and reads the others'. Lanes and mailboxes are independent of each other: each may be used by one
// thread of a rank at a time. Headers, addresses and counts alternate between two places, because a rank can be at most one
// operation ahead.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "comm/disagreement.h"
#include "comm/futex.h"
#include "comm/operation_header.h"

namespace trivet::comm {

// The message that a rank publishes when it enters an operation. Its addresses come from
// SharedMemory::publish; 0 means that others cannot reach the memory.
struct Entry {
  OperationHeader header;
  uint64_t in = 0, out = 0;
};

struct Line {
  SharedCounter arrived;
  Entry entries[2];
};

// A one-way mailbox from one rank to another. The sender counts its entry and every chunk after the first, the receiver its
// entry and every chunk it has taken.
struct Mailbox {
  SharedCounter sent, received;
  Entry sender[2], receiver[2];
};

class Board {
 public:
  static constexpr int kCollectiveSlots = 3, kSendSlots = 2, kResultSlots = 2;

  // `result_slots` (0 or kResultSlots): for groups whose ranks are on several hosts (comm/hosts).
  static int64_t bytes(int size, int64_t slot_bytes, int result_slots = 0);
  // `memory` must be page-aligned, and zero when the first rank sees it; it lives as long as somebody holds it.
  Board(std::shared_ptr<std::byte> memory, int size, int64_t slot_bytes, int result_slots = 0)
      : memory_(std::move(memory)), size_(size), result_slots_(result_slots), slot_bytes_(slot_bytes) {}

  Disagreement* disagreement() const { return reinterpret_cast<Disagreement*>(memory_.get()); }
  Line* data_lane() const { return reinterpret_cast<Line*>(memory_.get() + sizeof(Disagreement)); }
  Line* control_lane() const { return data_lane() + size_; }
  Mailbox& mailbox(int from, int to) const { return reinterpret_cast<Mailbox*>(data_lane() + 2 * size_)[from * size_ + to]; }
  // Return how much `rank` sends to and receives from each rank, in the operation of this number of the data lane.
  std::span<int64_t> sent_counts(int rank, uint32_t operation) const { return counts(2 * (2 * rank + operation % 2)); }
  std::span<int64_t> received_counts(int rank, uint32_t operation) const { return counts(2 * (2 * rank + operation % 2) + 1); }
  int64_t slot_bytes() const { return slot_bytes_; }  // 0: no slots
  std::byte* collective_slot(int rank, int64_t index) const { return slot(rank, index % kCollectiveSlots); }
  std::byte* send_slot(int rank, int64_t index) const { return slot(rank, kCollectiveSlots + index % kSendSlots); }
  std::byte* result_slot(int rank, int64_t index) const {
    return slot(rank, kCollectiveSlots + kSendSlots + index % kResultSlots);
  }

 private:
  std::byte* slot(int rank, int64_t index) const;
  std::span<int64_t> counts(int64_t index) const {
    auto* first = reinterpret_cast<int64_t*>(&mailbox(0, 0) + int64_t{size_} * size_);
    return {first + index * size_, static_cast<size_t>(size_)};
  }

  std::shared_ptr<std::byte> memory_;
  int size_, result_slots_;
  int64_t slot_bytes_;
};

}  // namespace trivet::comm
