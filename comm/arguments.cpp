#include "comm/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <stdexcept>

#include "comm/reduce.h"

namespace trivet::comm {
namespace {

[[noreturn]] void refuse(const ProcessGroup& group, const std::string& what) {
  throw std::logic_error(fmt::format("comm: group \"{}\" rank {}: {}", group.name(), group.rank(), what));
}

void check_reducible(const ProcessGroup& group, Operation operation, DType dtype, ReduceOp op) {
  if (op == ReduceOp::TreeSum && !std::has_single_bit(static_cast<unsigned>(group.size())))
    refuse(group, fmt::format("{}: a tree sum over {} ranks is not defined; their number must be a power of two",
                              name_of(operation), group.size()));
  if (!can_reduce(dtype)) refuse(group, fmt::format("{} of {} is not defined", name_of(operation), name_of(dtype)));
}

void check_whole(const ProcessGroup& group, Operation operation, ConstTensorView whole, ConstTensorView shard) {
  if (whole.dtype == shard.dtype && whole.elements() == shard.elements() * group.size()) return;
  refuse(group, fmt::format("{}: whole of {} {} is not {} times shard of {} {}", name_of(operation), whole.elements(),
                            name_of(whole.dtype), group.size(), shard.elements(), name_of(shard.dtype)));
}

void check_counts(const ProcessGroup& group, const char* what, const std::vector<int64_t>& counts, ConstTensorView tensor) {
  int64_t sum = 0;
  bool negative = false;
  for (int64_t count : counts) {
    sum += count;
    negative = negative || count < 0;
  }
  if (counts.size() == static_cast<size_t>(group.size()) && !negative && sum == tensor.elements()) return;
  refuse(group, fmt::format("all_to_all_v: counts {} must be {} numbers of at least 0 whose sum is {}, but they are {}", what,
                            group.size(), tensor.elements(), fmt::join(counts, ", ")));
}

void check_rank(const ProcessGroup& group, Operation operation, int rank, bool may_be_self) {
  const bool inside = rank >= 0 && rank < group.size();
  if (!inside)
    refuse(group, fmt::format("{}: rank {} is not in this group of {} ranks", name_of(operation), rank, group.size()));
  if (rank == group.rank() && !may_be_self) refuse(group, fmt::format("{}: the peer is the rank itself", name_of(operation)));
}

}  // namespace

OperationHeader all_reduce_header(const ProcessGroup& group, ConstTensorView data, ReduceOp op) {
  check_reducible(group, Operation::AllReduce, data.dtype, op);
  return {.count = data.elements(), .operation = Operation::AllReduce, .dtype = data.dtype, .reduce = op};
}

OperationHeader reduce_scatter_header(const ProcessGroup& group, ConstTensorView whole, ConstTensorView shard, ReduceOp op) {
  check_reducible(group, Operation::ReduceScatter, whole.dtype, op);
  check_whole(group, Operation::ReduceScatter, whole, shard);
  return {.count = shard.elements(), .operation = Operation::ReduceScatter, .dtype = shard.dtype, .reduce = op};
}

OperationHeader all_gather_header(const ProcessGroup& group, ConstTensorView shard, ConstTensorView whole) {
  check_whole(group, Operation::AllGather, whole, shard);
  return {.count = shard.elements(), .operation = Operation::AllGather, .dtype = shard.dtype};
}

OperationHeader broadcast_header(const ProcessGroup& group, ConstTensorView data, int root) {
  check_rank(group, Operation::Broadcast, root, true);
  return {.count = data.elements(), .root = root, .operation = Operation::Broadcast, .dtype = data.dtype};
}

OperationHeader all_to_all_header(const ProcessGroup& group, ConstTensorView in, ConstTensorView out) {
  if (in.dtype != out.dtype || in.elements() != out.elements() || in.elements() % group.size() != 0)
    refuse(group,
           fmt::format("all_to_all: input has {} {}, output {} {} elements; both must be of one type and {} x n elements",
                       in.elements(), name_of(in.dtype), out.elements(), name_of(out.dtype), group.size()));
  return {.count = in.elements() / group.size(), .operation = Operation::AllToAll, .dtype = in.dtype};
}

OperationHeader all_to_all_v_header(const ProcessGroup& group, ConstTensorView in, ConstTensorView out,
                                    const ExchangeCounts& counts) {
  check_counts(group, "sent", counts.sent, in);
  check_counts(group, "received", counts.received, out);
  const size_t own = group.rank();
  if (counts.sent[own] != counts.received[own])
    refuse(group, fmt::format("all_to_all_v: the rank sends itself {} elements and receives {} from itself", counts.sent[own],
                              counts.received[own]));
  if (in.dtype != out.dtype)
    refuse(group, fmt::format("all_to_all_v: in of {} and out of {} differ", name_of(in.dtype), name_of(out.dtype)));
  return {.operation = Operation::AllToAllV, .dtype = in.dtype};
}

OperationHeader message_header(const ProcessGroup& group, Operation operation, ConstTensorView data, int peer) {
  check_rank(group, operation, peer, false);
  return {.count = data.elements(), .root = peer, .operation = operation, .dtype = data.dtype};
}

void check_members(const ProcessGroup& group, const std::vector<int>& ranks, const std::string& name) {
  bool ascending = !ranks.empty() && ranks.front() >= 0 && ranks.back() < group.size();
  for (size_t i = 1; i < ranks.size(); ++i) ascending = ascending && ranks[i - 1] < ranks[i];
  if (!ascending)
    refuse(group, fmt::format("subgroup \"{}\" of ranks {} must be ascending ranks below {}", name, fmt::join(ranks, ", "),
                              group.size()));
}

// The digest is FNV-1a over the name and the members.
OperationHeader subgroup_header(const ProcessGroup& group, const std::vector<int>& ranks, const std::string& name) {
  check_members(group, ranks, name);
  uint32_t hash = 2166136261u;
  const auto mix = [&](uint32_t value) { hash = (hash ^ value) * 16777619u; };
  for (char letter : name) mix(static_cast<unsigned char>(letter));
  for (int rank : ranks) mix(static_cast<uint32_t>(rank));
  return {.root = static_cast<int32_t>(hash), .occasion = Occasion::Subgroup};
}

}  // namespace trivet::comm
