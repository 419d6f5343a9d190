#include "comm/transport/transport_group.h"

#include <algorithm>

#include "comm/arguments.h"

namespace trivet::comm {

TransportGroup::TransportGroup(std::shared_ptr<RankTransport> transport, uint64_t group_id, RankInGroup self, JobView job)
    : link_(std::move(transport), group_id, std::move(self), std::move(job)),
      collectives_(link_),
      messages_(link_),
      control_(link_, MessageKind::ControlHeader) {
  link_.set_waits_elsewhere(
      [this](int peer, const OperationHeader& during) { return waits_elsewhere(collectives_, messages_, peer, during); });
}

std::unique_ptr<ProcessGroup> TransportGroup::subgroup(const std::vector<int>& ranks, const std::string& name) {
  Announcement mine{subgroup_header(*this, ranks, name)};
  if (ranks.front() == rank()) mine.group_id = link_.transport()->next_group_id();
  const uint64_t group_id = control_.enter(mine)[ranks.front()].group_id;
  if (std::find(ranks.begin(), ranks.end(), rank()) == ranks.end()) return nullptr;
  const GroupErrors& errors = link_.errors();
  return std::make_unique<TransportGroup>(link_.transport(), group_id, errors.self().in_subgroup(ranks, name), errors.job());
}

void TransportGroup::close() { control_.enter({{.occasion = Occasion::Close}}); }

}  // namespace trivet::comm
