#include "comm/collectives.h"

#include <algorithm>
#include <cstring>

#include "comm/parts.h"
#include "comm/reduce.h"

namespace trivet::comm {

Collectives::Collectives(const CounterWait& wait, const Board& board, const SharedMemory& memory)
    : wait_(wait), board_(board), memory_(memory), lane_(board.data_lane(), wait) {}

void Collectives::run(const Call& call) {
  under_way_ = true;
  run_entered(call);
  under_way_ = false;  // stays true after a failure: the group cannot be used any more
}

void Collectives::run_entered(const Call& call) {
  const bool moves = call.header.operation != Operation::Barrier && call.header.count > 0;
  if (!moves) return lane_.enter({.header = call.header});

  const Entry mine{call.header, memory_.publish(call.in.data, call.in.bytes()),
                   memory_.publish(call.out.data, call.out.bytes())};
  const bool reachable = mine.in != 0 && mine.out != 0;
  const Stages stages = board_.slot_bytes() > 0 ? stages_of(call) : Stages{};
  if (!reachable) stages.fill(0);  // before the ranks meet, which saves one meeting
  lane_.enter(mine);
  if (all_reachable()) {
    direct(call);
    lane_.step();
    return;
  }
  if (any_reachable()) {
    if (reachable) stages.fill(0);
    lane_.step();
  }
  run_stages(stages);
}

bool Collectives::all_reachable() const {
  for (int rank = 0; rank < wait_.size(); ++rank)
    if (lane_.entry(rank).in == 0 || lane_.entry(rank).out == 0) return false;
  return true;
}

bool Collectives::any_reachable() const {
  for (int rank = 0; rank < wait_.size(); ++rank)
    if (lane_.entry(rank).in != 0 && lane_.entry(rank).out != 0) return true;
  return false;
}

void Collectives::direct(const Call& call) {
  auto* out = static_cast<std::byte*>(call.out.data);
  const int64_t bytes = call.header.count * size_of(call.header.dtype);
  const auto copy = [&](int from, int64_t offset, std::byte* to) {
    const std::byte* source = memory_.resolve(lane_.entry(from).in) + offset;
    if (source != to) std::memcpy(to, source, static_cast<size_t>(bytes));
  };
  switch (call.header.operation) {
    case Operation::AllReduce: return direct_all_reduce(call);
    case Operation::ReduceScatter: return direct_reduce_scatter(call);
    case Operation::Broadcast: return copy(call.header.root, 0, out);
    case Operation::AllGather:
      for (int from : ranks_after(wait_.rank(), wait_.size())) copy(from, 0, out + from * bytes);
      return;
    case Operation::AllToAll:
      for (int from : ranks_after(wait_.rank(), wait_.size())) copy(from, wait_.rank() * bytes, out + from * bytes);
      return;
    default: return;
  }
}

// Each rank sums its part of the elements and writes the sum to all ranks.
void Collectives::direct_all_reduce(const Call& call) {
  const Part part = part_of(call.header.count, size_of(call.header.dtype), wait_.rank(), wait_.size());
  std::vector<const void*> from;
  std::vector<void*> to;
  for (int rank = 0; rank < wait_.size(); ++rank) {
    to.push_back(memory_.resolve(lane_.entry(rank).in) + part.first * size_of(call.header.dtype));
    from.push_back(to.back());
  }
  reduce(call.header.dtype, call.header.reduce, from, to, part.count);
}

void Collectives::direct_reduce_scatter(const Call& call) {
  const int64_t bytes = call.header.count * size_of(call.header.dtype);
  std::vector<const void*> from;
  for (int rank = 0; rank < wait_.size(); ++rank) from.push_back(memory_.resolve(lane_.entry(rank).in) + wait_.rank() * bytes);
  void* const to[] = {call.out.data};
  reduce(call.header.dtype, call.header.reduce, from, to, call.header.count);
}

}  // namespace trivet::comm
