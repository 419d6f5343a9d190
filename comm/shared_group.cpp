#include "comm/shared_group.h"

#include <algorithm>
#include <optional>

#include "comm/arguments.h"

namespace trivet::comm {
SharedGroup::SharedGroup(RankInGroup self, JobView job, std::shared_ptr<std::byte> board, std::shared_ptr<SharedMemory> memory,
                         std::function<void()> while_waiting)
    : memory_(std::move(memory)),
      while_waiting_(std::move(while_waiting)),
      board_(std::move(board), self.size(), memory_->slot_bytes()),
      wait_(std::move(self), std::move(job), board_.disagreement()),
      collectives_(wait_, board_, *memory_),
      messages_(wait_, board_, *memory_),
      control_(board_.control_lane(), wait_) {
  if (while_waiting_) wait_.set_while_waiting(while_waiting_);
  wait_.set_waits_elsewhere(
      [this](int peer, const OperationHeader& during) { return waits_elsewhere(collectives_, messages_, peer, during); });
}

// The first member creates the board. All ranks of this group meet twice: when the board exists, and when the members have
// attached to it.
std::unique_ptr<ProcessGroup> SharedGroup::subgroup(const std::vector<int>& ranks, const std::string& name) {
  const OperationHeader header = subgroup_header(*this, ranks, name);
  const bool member = std::find(ranks.begin(), ranks.end(), rank()) != ranks.end(), creator = ranks.front() == rank();
  const int64_t bytes = Board::bytes(static_cast<int>(ranks.size()), memory_->slot_bytes());

  SharedMemory::NewBoard board;
  std::optional<BoardName> unlinked_at_the_end;
  if (creator) {
    board = memory_->create_board(bytes);
    unlinked_at_the_end.emplace(*memory_, board.token);
  }
  control_.enter({.header = header, .in = board.token});
  if (member && !creator) board.memory = memory_->attach_board(control_.entry(ranks.front()).in, bytes);
  control_.step();
  unlinked_at_the_end.reset();
  if (!member) return nullptr;
  const GroupErrors& errors = wait_.errors();
  return std::make_unique<SharedGroup>(errors.self().in_subgroup(ranks, name), errors.job(), std::move(board.memory), memory_,
                                       while_waiting_);
}

void SharedGroup::close() { control_.enter({.header = {.occasion = Occasion::Close}}); }

}  // namespace trivet::comm
