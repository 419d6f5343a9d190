// A process group whose ranks are on several hosts. Ranks on one host share memory, others communicate over a transport; the
// results have the same bits as those of a group on one host, and the errors the same words.
#pragma once

#include <atomic>

#include "comm/host_group.h"
#include "comm/hosts/hosts_collectives.h"
#include "comm/messages.h"
#include "comm/transport/transport_messages.h"

namespace trivet::comm {

// The objects that all groups of a rank share.
struct RankSurroundings {
  std::shared_ptr<RankTransport> transport;
  std::shared_ptr<SharedMemory> memory;  // shared by the ranks on this host
  std::vector<int> hosts;                // by world rank: equal numbers mean the same host
  HostSums sums = HostSums::Chain;
  std::string network = {};  // World::network()
};

class HostsGroup final : public HostGroup {
 public:
  static int64_t board_bytes(int ranks_here, const SharedMemory& memory) {
    return Board::bytes(ranks_here, memory.slot_bytes(), Board::kResultSlots);
  }
  // `group_id`: see group_link.h. The board is that of the ranks on this host, with board_bytes.
  HostsGroup(RankSurroundings surroundings, uint64_t group_id, const RankInGroup& self, const JobView& job,
             std::shared_ptr<std::byte> board);

  int rank() const override { return link_.rank(); }
  int size() const override { return link_.size(); }
  const std::string& name() const override { return link_.errors().self().group; }

  // Blocks until all ranks of this group have called it. Operations of this group may be in flight meanwhile. If all members
  // are on one host, the group is one that shares memory.
  std::unique_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks, const std::string& name) override;

  // All ranks meet for the last time. Blocks.
  void close();

 private:
  void run(const Call& call) override { collectives_.run(call); }
  void run_send(const OperationHeader& header, ConstTensorView data) override;
  void run_receive(const OperationHeader& header, TensorView data) override;
  // Throws RanksDisagree if a rank on another host waits for a message of this rank, and will not enter the collective
  // operation that this rank is in.
  void look_for_messages() const;
  void while_waiting();

  const RankSurroundings surroundings_;
  const HostMap map_;
  std::vector<bool> here_;  // by group rank: whether it is on this host
  std::atomic<int> looks_{0};
  Board board_;
  // Whoever waits longest names the rank that is missing, and it must be the right one. So a rank that waits for others which
  // may wait for a third one is more patient than they are.
  CounterWait enters_;  // for ranks here
  GroupLink link_;      // for other hosts; a second more
  CounterWait steps_;   // for ranks here that may wait for other hosts; two seconds more
  HostSide side_;
  HostsCollectives collectives_;
  Messages messages_here_;
  TransportMessages messages_;
  GroupMeeting control_;
};

}  // namespace trivet::comm
