#include "comm/shared_group.h"

#include <algorithm>

#include "comm/arguments.h"
#include "comm/traffic.h"
#include "core/log.h"

namespace trivet::comm {
namespace {

// FNV-1a over the name and the members.
int32_t digest(const std::string& name, const std::vector<int>& ranks) {
  uint32_t hash = 2166136261u;
  const auto mix = [&](uint32_t value) { hash = (hash ^ value) * 16777619u; };
  for (char letter : name) mix(static_cast<unsigned char>(letter));
  for (int rank : ranks) mix(static_cast<uint32_t>(rank));
  return static_cast<int32_t>(hash);
}

}  // namespace

WorldActivity::Options activity_options(int rank, int size, const std::string& who, const WorldOptions& options) {
  const auto log = [rank](const std::string& line) { Log(rank).info(line); };
  return {.world_rank = rank,
          .world_size = size,
          .who = who,
          .report_after = options.report_waits_after,
          .report = options.on_long_wait ? options.on_long_wait : log};
}

SharedGroup::SharedGroup(RankInGroup self, JobView job, std::shared_ptr<std::byte> board, std::shared_ptr<SharedMemory> memory)
    : memory_(std::move(memory)),
      board_(std::move(board), self.size(), memory_->slot_bytes()),
      wait_(std::move(self), std::move(job), board_.disagreement()),
      collectives_(wait_, board_, *memory_),
      messages_(wait_, board_, *memory_),
      control_(board_.control_lane(), wait_) {
  wait_.set_waits_elsewhere([this](int peer, const OperationHeader& during) { return waits_elsewhere(peer, during); });
}

// A message on one side and a collective operation on the other never meet in the same counters.
std::optional<OperationHeader> SharedGroup::waits_elsewhere(int peer, const OperationHeader& during) const {
  if (during.occasion != Occasion::Operation) return std::nullopt;
  const bool message = during.operation == Operation::Send || during.operation == Operation::Receive;
  return message ? collectives_.ahead(peer) : messages_.ahead(peer);
}

void SharedGroup::count(const OperationHeader& header) {
  operations_ += 1;
  bytes_sent_ += bytes_sent(header, rank(), size());
}

void SharedGroup::collective(Call call, Stream& stream) {
  count(call.header);
  stream.enqueue([this, call] { collectives_.run(call); });
}

void SharedGroup::all_reduce(TensorView data, ReduceOp op, Stream& stream) {
  collective({all_reduce_header(*this, data, op), data, data}, stream);
}

void SharedGroup::reduce_scatter(ConstTensorView whole, TensorView shard, ReduceOp op, Stream& stream) {
  collective({reduce_scatter_header(*this, whole, shard, op), whole, shard}, stream);
}

void SharedGroup::all_gather(ConstTensorView shard, TensorView whole, Stream& stream) {
  collective({all_gather_header(*this, shard, whole), shard, whole}, stream);
}

void SharedGroup::broadcast(TensorView data, int root, Stream& stream) {
  collective({broadcast_header(*this, data, root), data, data}, stream);
}

void SharedGroup::all_to_all(ConstTensorView in, TensorView out, Stream& stream) {
  collective({all_to_all_header(*this, in, out), in, out}, stream);
}

void SharedGroup::barrier(Stream& stream) { collective({{.operation = Operation::Barrier}, {}, {}}, stream); }

void SharedGroup::send(ConstTensorView data, int peer, Stream& stream) {
  const OperationHeader header = message_header(*this, Operation::Send, data, peer);
  count(header);
  stream.enqueue([this, header, data] { messages_.send(header, data); });
}

void SharedGroup::receive(TensorView data, int peer, Stream& stream) {
  const OperationHeader header = message_header(*this, Operation::Receive, data, peer);
  count(header);
  stream.enqueue([this, header, data] { messages_.receive(header, data); });
}

// The first member creates the board. All ranks of this group meet twice: when the board exists, and when the members have
// attached to it.
std::unique_ptr<ProcessGroup> SharedGroup::subgroup(const std::vector<int>& ranks, const std::string& name) {
  check_members(*this, ranks, name);
  const bool member = std::find(ranks.begin(), ranks.end(), rank()) != ranks.end(), creator = ranks.front() == rank();
  const int64_t bytes = Board::bytes(static_cast<int>(ranks.size()), memory_->slot_bytes());

  SharedMemory::NewBoard board;
  if (creator) board = memory_->create_board(bytes);
  control_.enter({.header = {.root = digest(name, ranks), .occasion = Occasion::Subgroup}, .in = board.token});
  if (member && !creator) board.memory = memory_->attach_board(control_.entry(ranks.front()).in, bytes);
  control_.step();
  if (creator) memory_->unlink_board(board.token);
  if (!member) return nullptr;
  const GroupErrors& errors = wait_.errors();
  return std::make_unique<SharedGroup>(errors.self().in_subgroup(ranks, name), errors.job(), std::move(board.memory), memory_);
}

void SharedGroup::close() { control_.enter({.header = {.occasion = Occasion::Close}}); }

}  // namespace trivet::comm
