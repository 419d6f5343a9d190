#include "comm/transport/group_link.h"

#include <algorithm>
#include <stdexcept>

#include "comm/member.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;

constexpr int kPurposeBits = 3, kNumberBits = 20;
static_assert(static_cast<uint64_t>(Purpose::MessageTaken) < 1 << kPurposeBits);
static_assert(uint64_t{kMaxRanks} << (kNumberBits + kPurposeBits) <= uint64_t{1} << Transport::kTagBits);

// [Note: who is to blame for a connection that ended] It may have ended because its other end left after a third rank was lost.
// Liveness knows who was first, and tells the job a little later; only if it tells nothing, the peer itself is accused.
constexpr milliseconds kAccusationComes{300};

// The peers of the transfers, each once, and whether all transfers with a peer are complete.
AwaitedPeers peers_of(std::span<const PendingTransfer> transfers, std::vector<int>& ranks) {
  for (const PendingTransfer& pending : transfers) ranks.push_back(pending.rank);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return {ranks, [transfers, &ranks](size_t index) {
            return std::all_of(transfers.begin(), transfers.end(), [&](const PendingTransfer& pending) {
              return pending.rank != ranks[index] || pending.transfer->wait(milliseconds(0)) == TransferState::Complete;
            });
          }};
}

}  // namespace

uint64_t RankTransport::next_group_id() {
  const uint64_t number = ++groups_named_;
  if (number >> kNumberBits != 0) throw std::logic_error("comm: a rank has made more than a million groups over a transport");
  return static_cast<uint64_t>(transport->rank()) << kNumberBits | number;
}

GroupLink::GroupLink(std::shared_ptr<RankTransport> transport, uint64_t group_id, RankInGroup self, JobView job)
    : transport_(std::move(transport)), group_id_(group_id), errors_(std::move(self), std::move(job)) {}

std::unique_ptr<Transfer> GroupLink::send(int to, Purpose purpose, std::span<const std::byte> bytes) const {
  return transport_->transport->send(world_rank(to), tag(purpose), bytes);
}

std::unique_ptr<Transfer> GroupLink::receive(int from, Purpose purpose, std::span<std::byte> bytes) const {
  return transport_->transport->receive(world_rank(from), tag(purpose), bytes);
}

void GroupLink::await(std::span<const PendingTransfer> transfers, const OperationHeader& during) const {
  OperationWait wait(errors_, waits_elsewhere_, during);
  std::vector<int> ranks;
  std::optional<AwaitedPeers> peers;
  for (const PendingTransfer& pending : transfers) {
    while (pending.transfer->wait(OperationWait::kSlice) != TransferState::Complete) {
      const bool accused = errors_.job().state->accused();
      const TransferState state = pending.transfer->wait(milliseconds(0));
      if (state == TransferState::Complete) break;
      if (!peers) peers = peers_of(transfers, ranks);
      wait.look(accused, *peers);
      if (state == TransferState::PeerGone) throw_gone(pending.rank, during);
    }
  }
  wait.ended_well();
}

void GroupLink::throw_gone(int rank, const OperationHeader& during) const {
  if (errors_.job().state->wait_for(kAccusationComes)) errors_.throw_accusation(during);
  errors_.throw_lost(rank, transport_->transport->why_gone(world_rank(rank)), during);
}

}  // namespace trivet::comm
