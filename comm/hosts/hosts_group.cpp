#include "comm/hosts/hosts_group.h"

#include <algorithm>
#include <numeric>

#include "comm/arguments.h"
#include "comm/shared_group.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;

JobView with_patience(JobView job, milliseconds more) {
  job.deadline += more;
  return job;
}

HostMap map_ranks(const RankInGroup& self, const std::vector<int>& hosts) {
  std::vector<int> of_group;
  for (int world_rank : self.world_ranks) of_group.push_back(hosts[world_rank]);
  return map_hosts(of_group, self.rank);
}

}  // namespace

HostsGroup::HostsGroup(RankSurroundings surroundings, uint64_t group_id, const RankInGroup& self, const JobView& job,
                       std::shared_ptr<std::byte> board)
    : surroundings_(std::move(surroundings)),
      map_(map_ranks(self, surroundings_.hosts)),
      here_(self.world_ranks.size()),
      board_(std::move(board), static_cast<int>(map_.here().size()), surroundings_.memory->slot_bytes(), Board::kResultSlots),
      enters_(self, job, board_.disagreement()),
      link_(surroundings_.transport, group_id, self, with_patience(job, milliseconds(1000))),
      steps_(self, with_patience(job, milliseconds(2000)), board_.disagreement()),
      side_{link_, map_, board_, enters_, steps_, surroundings_.sums},
      collectives_(side_),
      messages_here_(enters_, board_, *surroundings_.memory, map_.here()),
      messages_(link_, [this] { return collectives_.entered(); }),
      control_(link_, MessageKind::ControlHeader) {
  for (int rank : map_.here()) here_[rank] = true;
  enters_.set_waits_elsewhere(
      [this](int peer, const OperationHeader& during) { return waits_elsewhere(collectives_, messages_here_, peer, during); });
  link_.set_waits_elsewhere([this](int peer, const OperationHeader& during) {
    look_for_messages();
    return waits_elsewhere(collectives_, messages_, peer, during);
  });
  enters_.set_while_waiting([this] { while_waiting(); });
  steps_.set_while_waiting([this] { while_waiting(); });
}

void HostsGroup::while_waiting() {
  constexpr int kLookEvery = 20;
  surroundings_.transport->transport->progress();
  if (++looks_ % kLookEvery == 0) look_for_messages();
}

void HostsGroup::look_for_messages() const {
  const uint32_t entered = collectives_.entered();
  if (!collectives_.under_way()) return;
  for (int rank = 0; rank < size(); ++rank) {
    if (here_[rank]) continue;
    const auto message = messages_.announced(rank);
    if (!message || message->collectives >= entered) continue;  // it has entered this operation, and perhaps left it
    enters_.disagree(this->rank(), collectives_.current(), rank, message->header);
  }
}

void HostsGroup::run_send(const OperationHeader& header, ConstTensorView data) {
  if (here_[header.root]) return messages_here_.send(header, data);
  messages_.send(header, data);
}

void HostsGroup::run_receive(const OperationHeader& header, TensorView data) {
  if (here_[header.root]) return messages_here_.receive(header, data);
  messages_.receive(header, data);
}

// The first member on each host creates the board of the members there. All ranks of this group meet twice: when the boards
// exist, and when the members have attached to them.
std::unique_ptr<ProcessGroup> HostsGroup::subgroup(const std::vector<int>& ranks, const std::string& name) {
  const OperationHeader header = subgroup_header(*this, ranks, name);
  const bool member = std::find(ranks.begin(), ranks.end(), rank()) != ranks.end();
  std::vector<int> here;  // members on this host
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(here), [this](int rank) { return here_[rank]; });
  const bool one_host = here.size() == ranks.size(), creator = member && here.front() == rank();
  SharedMemory& memory = *surroundings_.memory;
  const int size_here = static_cast<int>(here.size());
  const int64_t bytes = one_host ? Board::bytes(size_here, memory.slot_bytes()) : board_bytes(size_here, memory);

  SharedMemory::NewBoard board;
  std::optional<BoardName> unlinked_at_the_end;
  Announcement mine{header};
  if (ranks.front() == rank()) mine.group_id = surroundings_.transport->next_group_id();
  if (creator) {
    board = memory.create_board(bytes);
    unlinked_at_the_end.emplace(memory, board.token);
    mine.board = board.token;
  }
  const std::vector<Announcement> all = control_.enter(mine);
  if (member && !creator) board.memory = memory.attach_board(all[here.front()].board, bytes);
  control_.enter({header});
  unlinked_at_the_end.reset();
  if (!member) return nullptr;

  const RankInGroup self = link_.errors().self().in_subgroup(ranks, name);
  const JobView& job = enters_.errors().job();
  if (one_host)
    return std::make_unique<SharedGroup>(self, job, std::move(board.memory), surroundings_.memory,
                                         [transport = surroundings_.transport] { transport->transport->progress(); });
  return std::make_unique<HostsGroup>(surroundings_, all[ranks.front()].group_id, self, job, std::move(board.memory));
}

void HostsGroup::close() { control_.enter({{.occasion = Occasion::Close}}); }

}  // namespace trivet::comm
