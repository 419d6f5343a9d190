// Blocking send and receive of one rank of a group. Both sides meet and compare their headers, and the receiver copies:
//
//   sender    fill 0, enter |          fill 1 |           fill 2 (when 0 is taken) | ...  returns when all is taken
//   receiver  enter         | take 0          | take 1           | take 2
//
// The receiver copies directly from the sender's tensor where it can reach it (one chunk, no fill), otherwise through the
// sender's slots. Other ranks are not involved. Mailboxes are independent: a rank may send on one thread and receive on
// another.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/board.h"
#include "comm/counter_wait.h"
#include "comm/shared_memory.h"

namespace trivet::comm {

class Messages {
 public:
  // All ranks of the group share the board.
  Messages(const CounterWait& wait, const Board& board, const SharedMemory& memory);
  // Only these group ranks do; each has the line of its place in the list. Peers must be among them.
  Messages(const CounterWait& wait, const Board& board, const SharedMemory& memory, const std::vector<int>& ranks);

  void send(OperationHeader header, ConstTensorView data);
  void receive(OperationHeader header, TensorView data);
  // The message for which `peer` waits for this rank, while this rank sends and receives nothing.
  std::optional<OperationHeader> ahead(int peer) const;

 private:
  // This rank's end of a mailbox: the values of both counters when no message is in flight.
  struct End {
    uint32_t operations = 0, sent = 0, received = 0;
  };
  void compare(const Entry& sender, const Entry& receiver, int from, int to) const;
  int line() const { return lines_[wait_.rank()]; }
  int64_t chunk_bytes(const Entry& sender, int64_t bytes) const;

  const CounterWait& wait_;
  const Board& board_;
  const SharedMemory& memory_;
  std::vector<int> lines_;  // by group rank
  std::vector<End> to_, from_;
  std::mutex slots_;  // all sends of a rank share its slots
  std::atomic<int> under_way_{0};
};

}  // namespace trivet::comm
