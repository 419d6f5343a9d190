// The messages of one group over a transport, and one rank's wait for them.
//
// A tag says which group a message belongs to and what it is for:
//
//   [ world rank that named the group : 20 bits | number : 20 bits | kind : 4 bits ]
//
// The ids of groups are unique in a job: the first rank of a new group gives it a number of its own. The group of all ranks has
// id 0.
#pragma once

#include <atomic>
#include <vector>

#include "comm/operation_wait.h"
#include "comm/transport/transport.h"

namespace trivet::comm {

enum class MessageKind : uint64_t {
  CollectiveHeader,
  CollectiveData,
  ControlHeader,  // subgroups and close
  SendHeader,
  ReceiveHeader,
  MessageData,
  MessageTaken,  // one byte: the receiver has the data
  HostHeader,    // between the first ranks of hosts (comm/hosts)
  HostData,
  Probe,  // before the first operation (network_world.h)
};

inline constexpr int kKindBits = 4;

// The transport that all groups of a rank share. Thread-safe.
class RankTransport {
 public:
  RankTransport(std::unique_ptr<Transport> owned, int64_t segment) : transport(std::move(owned)), segment_bytes(segment) {}
  // An id for a group that this rank names.
  uint64_t next_group_id();

  const std::unique_ptr<Transport> transport;
  const int64_t segment_bytes;  // segment of a sum (transport_collectives.h)

 private:
  std::atomic<uint64_t> groups_named_{0};
};

// A message with group rank `rank`.
struct PeerMessage {
  int rank = 0;
  PendingMessage* message = nullptr;
};

class GroupLink {
 public:
  GroupLink(std::shared_ptr<RankTransport> transport, uint64_t group_id, RankInGroup self, JobView job);
  GroupLink(const GroupLink&) = delete;
  GroupLink& operator=(const GroupLink&) = delete;

  int rank() const { return errors_.self().rank; }
  int size() const { return errors_.self().size(); }
  std::vector<int> others() const;  // all group ranks but this one
  const GroupErrors& errors() const { return errors_; }
  const std::shared_ptr<RankTransport>& transport() const { return transport_; }
  // Before the first wait.
  void set_waits_elsewhere(WaitsElsewhere waits_elsewhere) { waits_elsewhere_ = std::move(waits_elsewhere); }

  // `to` and `from` are group ranks.
  std::unique_ptr<PendingMessage> send(int to, MessageKind kind, std::span<const std::byte> bytes) const;
  std::unique_ptr<PendingMessage> receive(int from, MessageKind kind, std::span<std::byte> bytes) const;

  // Waits until all messages are complete. Throws what OperationWait::look throws, and PeerLost for a peer whose connection
  // has ended. [Note: who is to blame for a connection that ended]
  void await(std::span<const PeerMessage> messages, const OperationHeader& during) const;

 private:
  [[noreturn]] void throw_gone(int rank, const OperationHeader& during) const;
  int world_rank(int rank) const { return errors_.self().world_ranks[rank]; }
  uint64_t tag(MessageKind kind) const { return group_id_ << kKindBits | static_cast<uint64_t>(kind); }

  const std::shared_ptr<RankTransport> transport_;
  const uint64_t group_id_;
  const GroupErrors errors_;
  WaitsElsewhere waits_elsewhere_;
};

}  // namespace trivet::comm
