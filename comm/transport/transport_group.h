// A process group over any transport. Its results have the same bits as those of groups that share memory, and its errors the
// same words.
#pragma once

#include "comm/host_group.h"
#include "comm/transport/transport_collectives.h"
#include "comm/transport/transport_messages.h"

namespace trivet::comm {

class TransportGroup final : public HostGroup {
 public:
  // `group_id`: see group_link.h.
  TransportGroup(std::shared_ptr<RankTransport> transport, uint64_t group_id, RankInGroup self, JobView job);

  int rank() const override { return link_.rank(); }
  int size() const override { return link_.size(); }
  const std::string& name() const override { return link_.errors().self().group; }

  // Blocks until all ranks of this group have called it. Operations of this group may be in flight meanwhile.
  std::unique_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks, const std::string& name) override;

  // All ranks meet for the last time. Blocks.
  void close();

 private:
  void run(const Call& call) override { collectives_.run(call); }
  void run_send(const OperationHeader& header, ConstTensorView data) override { messages_.send(header, data); }
  void run_receive(const OperationHeader& header, TensorView data) override { messages_.receive(header, data); }

  GroupLink link_;
  TransportCollectives collectives_;
  TransportMessages messages_;
  GroupMeeting control_;
};

}  // namespace trivet::comm
