#include "comm/collectives.h"

#include <algorithm>
#include <cstring>

#include "comm/element_range.h"
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
  const bool by_counts = call.header.operation == Operation::AllToAllV;
  const bool moves = by_counts || (call.header.operation != Operation::Barrier && call.header.count > 0);
  if (!moves) return lane_.enter({.header = call.header});

  if (by_counts) publish_counts(call.counts);
  const Entry mine{call.header, address_of(call.in), address_of(call.out)};
  const bool reachable = mine.in != 0 && mine.out != 0;
  Stages stages = board_.slot_bytes() > 0 ? stages_of(call) : Stages{};
  if (!reachable) stages.fill(0);  // before the ranks meet, which saves one meeting
  lane_.enter(mine);
  if (by_counts) compare_counts(call);
  if (all_reachable()) {
    direct(call);
    lane_.step();
    return;
  }
  if (any_reachable()) {
    if (reachable) stages.fill(0);
    lane_.step();
  }
  if (by_counts) stages.chunks = exchanged_chunks(call);
  run_stages(stages);
}

// An empty tensor has an address, too, because nobody reads or writes it.
uint64_t Collectives::address_of(ConstTensorView tensor) const {
  constexpr uint64_t kNowhere = 1;
  return tensor.elements() == 0 ? kNowhere : memory_.publish(tensor.data, tensor.bytes());
}

void Collectives::publish_counts(const ExchangeCounts& counts) {
  const uint32_t next = lane_.operations() + 1;
  std::copy(counts.sent.begin(), counts.sent.end(), board_.sent_counts(wait_.rank(), next).begin());
  std::copy(counts.received.begin(), counts.received.end(), board_.received_counts(wait_.rank(), next).begin());
}

// Every rank compares all pairs, so that all of them report the same one.
void Collectives::compare_counts(const Call& call) const {
  for (int from = 0; from < wait_.size(); ++from)
    for (int to = 0; to < wait_.size(); ++to) {
      const int64_t sent = board_.sent_counts(from, lane_.operations())[to];
      const int64_t received = board_.received_counts(to, lane_.operations())[from];
      if (sent != received) wait_.errors().disagree_about_counts(call.header, {from, sent}, {to, received});
    }
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
    if (source != to) std::memcpy(to, source, bytes);
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
    case Operation::AllToAllV: return direct_all_to_all_v(call);
    default: return;
  }
}

// Each rank sums its part of the elements and writes the sum to all ranks.
void Collectives::direct_all_reduce(const Call& call) {
  const ElementRange part = part_of(call.header.count, size_of(call.header.dtype), wait_.rank(), wait_.size());
  std::vector<const void*> from;
  std::vector<void*> to;
  for (int rank = 0; rank < wait_.size(); ++rank) {
    to.push_back(memory_.resolve(lane_.entry(rank).in) + part.first * size_of(call.header.dtype));
    from.push_back(to.back());
  }
  reduce(call.header.dtype, call.header.reduce, from, to, part.count);
}

void Collectives::direct_all_to_all_v(const Call& call) {
  const int64_t bytes = size_of(call.header.dtype);
  const std::vector<ElementRange> mine = parts_of(call.counts.received);
  for (int from : ranks_after(wait_.rank(), wait_.size())) {
    const ElementRange theirs = parts_of(board_.sent_counts(from, lane_.operations()))[wait_.rank()];
    if (theirs.count == 0) continue;
    const std::byte* source = memory_.resolve(lane_.entry(from).in) + theirs.first * bytes;
    std::memcpy(static_cast<std::byte*>(call.out.data) + mine[from].first * bytes, source, theirs.count * bytes);
  }
}

void Collectives::direct_reduce_scatter(const Call& call) {
  const int64_t bytes = call.header.count * size_of(call.header.dtype);
  std::vector<const void*> from;
  for (int rank = 0; rank < wait_.size(); ++rank) from.push_back(memory_.resolve(lane_.entry(rank).in) + wait_.rank() * bytes);
  void* const to[] = {call.out.data};
  reduce(call.header.dtype, call.header.reduce, from, to, call.header.count);
}

}  // namespace trivet::comm
