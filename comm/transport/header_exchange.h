// The headers that the ranks of a group send each other when they enter an operation, for one kind.
//
// A receive is always posted for the next header of every other rank. So headers need no memory of the transport, and a rank
// sees what another one has entered before it enters an operation itself.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "comm/transport/group_link.h"

namespace trivet::comm {

// The message that a rank sends when it enters an operation. All ranks run the same build, so it is sent as raw memory.
struct Announcement {
  OperationHeader header;
  uint64_t group_id = 0;           // from the first rank of a new subgroup
  uint64_t board = 0;              // from the first rank on a host (comm/hosts): the token of a board
  int64_t sent = 0, received = 0;  // all_to_all_v: elements for the rank that this goes to, and from it
  uint32_t collectives = 0;        // send and receive over hosts: how many collective operations its sender had entered before
};

class HeaderExchange {
 public:
  // Exchanges with all other ranks of the group, or only with these. The link must outlive this object.
  HeaderExchange(const GroupLink& link, MessageKind kind);
  HeaderExchange(const GroupLink& link, MessageKind kind, const std::vector<int>& peers);

  // `mine` must stay valid until the message is complete.
  std::unique_ptr<PendingMessage> send(int to, const Announcement& mine) const;
  // The message of the next header of `from`; valid until take().
  PeerMessage next(int from) const { return {from, slots_[from].receive.get()}; }
  // The header that has arrived from `from`. Posts the receive of the next one.
  Announcement take(int from);
  // The header that has arrived from `from` and was not taken yet. On any thread.
  std::optional<OperationHeader> ahead(int from) const;
  std::optional<Announcement> announced(int from) const;

 private:
  struct Slot {
    Announcement announcement;
    std::unique_ptr<PendingMessage> receive;
  };
  void post(int from);

  const GroupLink& link_;
  const MessageKind kind_;
  mutable std::mutex mutex_;  // another thread may look at a slot while it is replaced
  std::vector<Slot> slots_;   // by group rank; this rank's own is empty
};

}  // namespace trivet::comm
