#include "comm/transport/group_link.h"

#include <algorithm>
#include <stdexcept>

#include "comm/member.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;

constexpr int kNumberBits = 20;
static_assert(static_cast<uint64_t>(MessageKind::Probe) < 1 << kKindBits);
static_assert(uint64_t{kMaxRanks} << (kNumberBits + kKindBits) <= uint64_t{1} << Transport::kTagBits);

// [Note: who is to blame for a connection that ended] It may have ended because its other end left after a third rank was lost.
// Liveness knows who was first, and tells the job a little later. The peer itself is accused only if nothing is reported in
// this time, and then only once rank 0 is heard again: if rank 0 is stopped, those on its host see it and leave first.
constexpr milliseconds kAccusationComes{300};

// The peers of the messages, each once, and whether all messages with a peer are complete, or may still become so: until the
// connection to it has ended.
AwaitedPeers peers_of(std::span<const PeerMessage> messages, std::vector<int>& ranks) {
  for (const PeerMessage& pending : messages) ranks.push_back(pending.rank);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  const auto all_are = [messages, &ranks](size_t index, auto&& condition) {
    return std::all_of(messages.begin(), messages.end(), [&](const PeerMessage& pending) {
      return pending.rank != ranks[index] || condition(pending.message->wait(milliseconds(0)));
    });
  };
  return {.ranks = ranks,
          .has_arrived =
              [=](size_t index) { return all_are(index, [](MessageState state) { return state == MessageState::Complete; }); },
          .may_still_arrive =
              [=](size_t index) { return all_are(index, [](MessageState state) { return state != MessageState::PeerGone; }); }};
}

}  // namespace

uint64_t RankTransport::next_group_id() {
  const uint64_t number = ++groups_named_;
  if (number >> kNumberBits != 0) throw std::logic_error("comm: a rank has made more than a million groups over a transport");
  return static_cast<uint64_t>(transport->rank()) << kNumberBits | number;
}

GroupLink::GroupLink(std::shared_ptr<RankTransport> transport, uint64_t group_id, RankInGroup self, JobView job)
    : transport_(std::move(transport)), group_id_(group_id), errors_(std::move(self), std::move(job)) {}

std::vector<int> GroupLink::others() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank)
    if (rank != this->rank()) ranks.push_back(rank);
  return ranks;
}

std::unique_ptr<PendingMessage> GroupLink::send(int to, MessageKind kind, std::span<const std::byte> bytes) const {
  return transport_->transport->send(world_rank(to), tag(kind), bytes);
}

std::unique_ptr<PendingMessage> GroupLink::receive(int from, MessageKind kind, std::span<std::byte> bytes) const {
  return transport_->transport->receive(world_rank(from), tag(kind), bytes);
}

void GroupLink::await(std::span<const PeerMessage> messages, const OperationHeader& during) const {
  OperationWait wait(errors_, waits_elsewhere_, during);
  std::vector<int> ranks;
  std::optional<AwaitedPeers> peers;
  for (const PeerMessage& pending : messages) {
    while (pending.message->wait(OperationWait::kSlice) != MessageState::Complete) {
      const bool accused = errors_.job().state->accused();
      const MessageState state = pending.message->wait(milliseconds(0));
      if (state == MessageState::Complete) break;
      if (!peers) peers = peers_of(messages, ranks);
      wait.look(accused, *peers);
      if (state == MessageState::PeerGone) throw_gone(pending.rank, during);
    }
  }
  wait.ended_well();
}

void GroupLink::throw_gone(int rank, const OperationHeader& during) const {
  if (errors_.job().state->wait_for_accusation(kAccusationComes)) errors_.throw_accusation(during);
  const Transport& transport = *transport_->transport;
  errors_.throw_lost(transport.has_given_up() ? this->rank() : rank, transport.why_gone(world_rank(rank)), during);
}

}  // namespace trivet::comm
