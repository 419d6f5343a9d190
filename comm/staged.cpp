// The staged collective operations; see [Note: direct and staged].
#include <algorithm>

#include "comm/chunks.h"
#include "comm/collectives.h"
#include "comm/element_range.h"
#include "comm/reduce.h"

namespace trivet::comm {
namespace {

const std::byte* bytes_of(const Call& call) { return static_cast<const std::byte*>(call.in.data); }

}  // namespace

// Runs the steps drawn in [Note: direct and staged]. Chunk 0 has been filled, and all ranks have met since.
void Collectives::run_stages(const Stages& stages) {
  const int64_t lag = stages.combine ? 1 : 0;
  for (int64_t step = 0; step < stages.chunks + lag; ++step) {
    if (step > 0) lane_.step();
    if (step + 1 < stages.chunks) stages.fill(step + 1);
    if (stages.combine && step < stages.chunks) stages.combine(step);
    if (step >= lag) stages.drain(step - lag);
  }
  chunks_used_ += stages.chunks;
}

Collectives::Stages Collectives::stages_of(const Call& call) {
  switch (call.header.operation) {
    case Operation::AllReduce: return staged_all_reduce(call);
    case Operation::ReduceScatter: return staged_reduce_scatter(call);
    case Operation::AllGather: return staged_all_gather(call);
    case Operation::Broadcast: return staged_broadcast(call);
    case Operation::AllToAll:
    case Operation::AllToAllV: return staged_all_to_all(call);
    default: return {};
  }
}

// A rank's own part of a chunk never leaves its tensor; its sum goes there and into the slot, where the others fetch it.
Collectives::Stages Collectives::staged_all_reduce(const Call& call) {
  const Cut cut = cut_for(call.header, board_.slot_bytes());
  auto* data = static_cast<std::byte*>(call.out.data);
  const auto copy_parts = [this, cut, data](int64_t chunk, bool to_own_slot) {
    for (int rank : ranks_after(wait_.rank(), wait_.size())) {
      if (rank == wait_.rank()) continue;
      const ElementRange part = part_of(cut.count(chunk), cut.element_bytes, rank, wait_.size());
      std::byte* staged = slot(to_own_slot ? wait_.rank() : rank, chunk) + part.first * cut.element_bytes;
      std::byte* here = data + cut.offset(chunk) + part.first * cut.element_bytes;
      copy_bytes(to_own_slot ? staged : here, to_own_slot ? here : staged, part.count * cut.element_bytes);
    }
  };
  const auto combine = [this, cut, data, header = call.header](int64_t chunk) {
    const ElementRange part = part_of(cut.count(chunk), cut.element_bytes, wait_.rank(), wait_.size());
    const int64_t offset = part.first * cut.element_bytes;
    std::byte* here = data + cut.offset(chunk) + offset;
    std::vector<const void*> from;
    for (int rank = 0; rank < wait_.size(); ++rank) from.push_back(rank == wait_.rank() ? here : slot(rank, chunk) + offset);
    void* const to[] = {here, slot(wait_.rank(), chunk) + offset};
    reduce(header.dtype, header.reduce, from, to, part.count);
  };
  return {cut.chunks(), [=](int64_t chunk) { copy_parts(chunk, true); }, combine,
          [=](int64_t chunk) { copy_parts(chunk, false); }};
}

// A slot has one piece for every rank.
Collectives::Stages Collectives::staged_reduce_scatter(const Call& call) {
  const Cut cut = cut_for(call.header, board_.slot_bytes() / wait_.size());
  const std::byte* whole = bytes_of(call);
  const int64_t shard_bytes = cut.total * cut.element_bytes, stride = cut.chunk * cut.element_bytes;
  const auto fill = [=, this](int64_t chunk) {
    for (int rank = 0; rank < wait_.size(); ++rank)
      if (rank != wait_.rank())
        copy_bytes(slot(wait_.rank(), chunk) + rank * stride, whole + rank * shard_bytes + cut.offset(chunk), cut.bytes(chunk));
  };
  const auto drain = [=, this, header = call.header, shard = static_cast<std::byte*>(call.out.data)](int64_t chunk) {
    std::vector<const void*> from;
    for (int rank = 0; rank < wait_.size(); ++rank)
      from.push_back(rank == wait_.rank() ? whole + rank * shard_bytes + cut.offset(chunk)
                                          : slot(rank, chunk) + wait_.rank() * stride);
    void* const to[] = {shard + cut.offset(chunk)};
    reduce(header.dtype, header.reduce, from, to, cut.count(chunk));
  };
  return {cut.chunks(), fill, {}, drain};
}

Collectives::Stages Collectives::staged_all_gather(const Call& call) {
  const Cut cut = cut_for(call.header, board_.slot_bytes());
  const std::byte* shard = bytes_of(call);
  const auto fill = [=, this](int64_t chunk) {
    copy_bytes(slot(wait_.rank(), chunk), shard + cut.offset(chunk), cut.bytes(chunk));
  };
  const auto drain = [=, this, whole = static_cast<std::byte*>(call.out.data)](int64_t chunk) {
    for (int rank : ranks_after(wait_.rank(), wait_.size())) {
      std::byte* to = whole + rank * cut.total * cut.element_bytes + cut.offset(chunk);
      const std::byte* from = rank == wait_.rank() ? shard + cut.offset(chunk) : slot(rank, chunk);
      if (from != to) copy_bytes(to, from, cut.bytes(chunk));
    }
  };
  return {cut.chunks(), fill, {}, drain};
}

Collectives::Stages Collectives::staged_broadcast(const Call& call) {
  const Cut cut = cut_for(call.header, board_.slot_bytes());
  auto* data = static_cast<std::byte*>(call.out.data);
  const int root = call.header.root;
  const auto fill = [=, this](int64_t chunk) {
    if (wait_.rank() == root) copy_bytes(slot(root, chunk), data + cut.offset(chunk), cut.bytes(chunk));
  };
  const auto drain = [=, this](int64_t chunk) {
    if (wait_.rank() != root) copy_bytes(data + cut.offset(chunk), slot(root, chunk), cut.bytes(chunk));
  };
  return {cut.chunks(), fill, {}, drain};
}

// A slot has one piece for every rank. In all_to_all_v, the pieces of some pairs of ranks end before those of others.
Collectives::Stages Collectives::staged_all_to_all(const Call& call) {
  const Cut cut = cut_for(call.header, board_.slot_bytes() / wait_.size());
  const bool by_counts = call.header.operation == Operation::AllToAllV;
  const std::vector<int64_t> equal(wait_.size(), cut.total);
  const std::vector<ElementRange> sent = parts_of(by_counts ? call.counts.sent : equal);
  const std::vector<ElementRange> received = parts_of(by_counts ? call.counts.received : equal);
  const int64_t stride = cut.chunk * cut.element_bytes;
  const auto piece = [cut](ElementRange part, int64_t chunk) {  // in bytes
    const Cut own{part.count, cut.chunk, cut.element_bytes};
    return ElementRange{part.first * cut.element_bytes + own.offset(chunk), std::max<int64_t>(own.bytes(chunk), 0)};
  };
  const auto fill = [=, this, in = bytes_of(call)](int64_t chunk) {
    for (int rank = 0; rank < wait_.size(); ++rank) {
      const ElementRange bytes = piece(sent[rank], chunk);
      if (rank != wait_.rank()) copy_bytes(slot(wait_.rank(), chunk) + rank * stride, in + bytes.first, bytes.count);
    }
  };
  const auto drain = [=, this, in = bytes_of(call), out = static_cast<std::byte*>(call.out.data)](int64_t chunk) {
    for (int rank : ranks_after(wait_.rank(), wait_.size())) {
      const ElementRange bytes = piece(received[rank], chunk);
      const std::byte* from =
          rank == wait_.rank() ? in + piece(sent[rank], chunk).first : slot(rank, chunk) + wait_.rank() * stride;
      copy_bytes(out + bytes.first, from, bytes.count);
    }
  };
  return {cut.chunks(), fill, {}, drain};
}

// The number of chunks that the pair of ranks with the largest exchange needs.
int64_t Collectives::exchanged_chunks(const Call& call) const {
  Cut cut = cut_for(call.header, board_.slot_bytes() / wait_.size());
  for (int rank = 0; rank < wait_.size(); ++rank)
    for (int64_t count : board_.sent_counts(rank, lane_.operations())) cut.total = std::max(cut.total, count);
  return cut.chunks();
}

}  // namespace trivet::comm
