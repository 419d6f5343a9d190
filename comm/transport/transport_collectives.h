// Blocking collective operations of one rank of a group over a transport. Every rank exchanges data directly with every other.
//
// all_gather, broadcast, all_to_all and all_to_all_v: a rank posts receives into its own tensor, meets the others, and sends.
// Every byte travels once.
//
// all_reduce and reduce_scatter: a rank receives its part of every other rank's tensor and sums it, in rank order, so that sums
// have the same bits as in a group that shares memory; in all_reduce it then sends the sum to all. This goes by segments, so
// that the received parts need little memory:
//
//   segment k   receive and send raw elements | sum | (all_reduce) receive and send sums |
//
// Data of a segment may arrive before its receive is posted: at most one segment from each rank.
#pragma once

#include <atomic>
#include <functional>
#include <span>

#include "comm/call.h"
#include "comm/transport/group_meeting.h"

namespace trivet::comm {

class TransportCollectives {
 public:
  // The link must outlive this object.
  explicit TransportCollectives(const GroupLink& link) : link_(link), meeting_(link, MessageKind::CollectiveHeader) {}

  void run(const Call& call);
  // The operation in which `rank` waits for this rank, while this rank is in no collective operation.
  std::optional<OperationHeader> ahead(int rank) const { return under_way_ ? std::nullopt : meeting_.ahead(rank); }

 private:
  // Messages that are in flight at the same time. Destroying it cancels them.
  struct MessagesInFlight {
    std::vector<std::unique_ptr<PendingMessage>> owned;
    std::vector<PeerMessage> pending;
  };
  // The memory for what this rank receives from, or sends to, another rank; may be empty.
  using Incoming = std::function<std::span<std::byte>(int rank)>;
  using Outgoing = std::function<std::span<const std::byte>(int rank)>;

  int64_t segment_elements(DType dtype) const { return link_.transport()->segment_bytes / size_of(dtype); }
  OperationHeader meet(const Call& call);
  void meet_and_move(const Call& call, const Incoming& incoming, const Outgoing& outgoing);
  void all_gather(const Call& call);
  void broadcast(const Call& call);
  void all_to_all(const Call& call);
  void all_to_all_v(const Call& call);
  void all_reduce(const Call& call);
  void reduce_scatter(const Call& call);

  void receive_all(const Incoming& incoming, MessagesInFlight& messages) const;
  void send_all(const Outgoing& outgoing, MessagesInFlight& messages) const;
  void exchange(const OperationHeader& during, const Incoming& incoming, const Outgoing& outgoing) const;
  // Memory for what all other ranks send of a segment of `bytes`: the piece of `rank`.
  std::span<std::byte> received(int rank, size_t bytes);
  // Sums `own` and what was received, in rank order.
  void sum(const OperationHeader& header, std::span<const std::byte> own, std::byte* to);

  const GroupLink& link_;
  GroupMeeting meeting_;
  std::vector<std::byte> received_;
  std::atomic<bool> under_way_{false};
};

}  // namespace trivet::comm
