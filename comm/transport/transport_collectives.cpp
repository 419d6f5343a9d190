#include "comm/transport/transport_collectives.h"

#include <algorithm>
#include <cstring>

#include "comm/element_range.h"
#include "comm/reduce.h"

namespace trivet::comm {
namespace {

std::span<const std::byte> bytes_of(ConstTensorView tensor) {
  return {static_cast<const std::byte*>(tensor.data), static_cast<size_t>(tensor.bytes())};
}
std::span<std::byte> bytes_of(TensorView tensor) {
  return {static_cast<std::byte*>(tensor.data), static_cast<size_t>(tensor.bytes())};
}

void copy_bytes(std::span<std::byte> to, std::span<const std::byte> from) {
  if (!to.empty() && to.data() != from.data()) std::memcpy(to.data(), from.data(), to.size());
}

// The part of `total` elements that is at `first` in a segment of at most `segment` elements.
ElementRange segment_of(int64_t total, int64_t first, int64_t segment) {
  const int64_t begin = std::min(first, total);
  return {begin, std::min(segment, total - begin)};
}

}  // namespace

void TransportCollectives::run(const Call& call) {
  under_way_ = true;
  const bool by_counts = call.header.operation == Operation::AllToAllV;
  const bool moves = by_counts || (call.header.operation != Operation::Barrier && call.header.count > 0);
  switch (moves ? call.header.operation : Operation::Barrier) {
    case Operation::AllReduce: all_reduce(call); break;
    case Operation::ReduceScatter: reduce_scatter(call); break;
    case Operation::AllGather: all_gather(call); break;
    case Operation::Broadcast: broadcast(call); break;
    case Operation::AllToAll: all_to_all(call); break;
    case Operation::AllToAllV: all_to_all_v(call); break;
    default: meet(call);
  }
  under_way_ = false;  // stays true after a failure: the group cannot be used any more
}

// Returns the header with the number of the operation.
OperationHeader TransportCollectives::meet(const Call& call) {
  const ExchangeCounts* counts = call.header.operation == Operation::AllToAllV ? &call.counts : nullptr;
  return meeting_.enter({call.header}, counts)[link_.rank()].header;
}

// Receives are posted first, so that no data arrives before its receive.
void TransportCollectives::meet_and_move(const Call& call, const Incoming& incoming, const Outgoing& outgoing) {
  MessagesInFlight messages;
  receive_all(incoming, messages);
  const OperationHeader header = meet(call);
  send_all(outgoing, messages);
  link_.await(messages.pending, header);
}

void TransportCollectives::all_gather(const Call& call) {
  const int64_t count = call.header.count;
  const auto part = [&](int rank) { return bytes_of(call.out.slice(rank * count, count)); };
  copy_bytes(part(link_.rank()), bytes_of(call.in));
  meet_and_move(call, part, [&](int) { return bytes_of(call.in); });
}

void TransportCollectives::broadcast(const Call& call) {
  const int root = call.header.root;
  const std::span<std::byte> data = bytes_of(call.out), nothing;
  const bool is_root = link_.rank() == root;
  meet_and_move(
      call, [&](int rank) { return rank == root ? data : nothing; }, [&](int) { return is_root ? data : nothing; });
}

void TransportCollectives::all_to_all(const Call& call) {
  const int64_t count = call.header.count;
  const auto incoming = [&](int rank) { return bytes_of(call.out.slice(rank * count, count)); };
  const auto outgoing = [&](int rank) { return bytes_of(call.in.slice(rank * count, count)); };
  copy_bytes(incoming(link_.rank()), outgoing(link_.rank()));
  meet_and_move(call, incoming, outgoing);
}

void TransportCollectives::all_to_all_v(const Call& call) {
  const std::vector<ElementRange> sent = parts_of(call.counts.sent), received = parts_of(call.counts.received);
  const auto incoming = [&](int rank) { return bytes_of(call.out.slice(received[rank].first, received[rank].count)); };
  const auto outgoing = [&](int rank) { return bytes_of(call.in.slice(sent[rank].first, sent[rank].count)); };
  copy_bytes(incoming(link_.rank()), outgoing(link_.rank()));
  meet_and_move(call, incoming, outgoing);
}

// Each rank sums its part of the elements and sends the sum to all ranks.
void TransportCollectives::all_reduce(const Call& call) {
  const OperationHeader header = meet(call);
  const int64_t element_bytes = size_of(header.dtype), segment = segment_elements(header.dtype);
  const auto part = [&](int rank) { return part_of(header.count, element_bytes, rank, link_.size()); };
  for (int64_t first = 0; first < part(0).count; first += segment) {  // no part is larger than that of rank 0
    const auto piece = [&](int rank) {
      const ElementRange cut = segment_of(part(rank).count, first, segment);
      return bytes_of(call.out.slice(part(rank).first + cut.first, cut.count));
    };
    const std::span<std::byte> own = piece(link_.rank());
    exchange(
        header, [&](int rank) { return received(rank, own.size()); }, piece);
    sum(header, own, own.data());
    exchange(header, piece, [&](int) { return own; });
  }
}

void TransportCollectives::reduce_scatter(const Call& call) {
  const OperationHeader header = meet(call);
  const int64_t segment = segment_elements(header.dtype);
  for (int64_t first = 0; first < header.count; first += segment) {
    const ElementRange part = segment_of(header.count, first, segment);
    const auto piece = [&](int rank) { return bytes_of(call.in.slice(rank * header.count + part.first, part.count)); };
    const std::span<std::byte> to = bytes_of(call.out.slice(part.first, part.count));
    exchange(
        header, [&](int rank) { return received(rank, to.size()); }, piece);
    sum(header, piece(link_.rank()), to.data());
  }
}

void TransportCollectives::receive_all(const Incoming& incoming, MessagesInFlight& messages) const {
  for (int rank : ranks_after(link_.rank(), link_.size())) {
    if (rank == link_.rank() || incoming(rank).empty()) continue;
    messages.owned.push_back(link_.receive(rank, MessageKind::CollectiveData, incoming(rank)));
    messages.pending.push_back({rank, messages.owned.back().get()});
  }
}

void TransportCollectives::send_all(const Outgoing& outgoing, MessagesInFlight& messages) const {
  for (int rank : ranks_after(link_.rank(), link_.size())) {
    if (rank == link_.rank() || outgoing(rank).empty()) continue;
    messages.owned.push_back(link_.send(rank, MessageKind::CollectiveData, outgoing(rank)));
    messages.pending.push_back({rank, messages.owned.back().get()});
  }
}

void TransportCollectives::exchange(const OperationHeader& during, const Incoming& incoming, const Outgoing& outgoing) const {
  MessagesInFlight messages;
  receive_all(incoming, messages);
  send_all(outgoing, messages);
  link_.await(messages.pending, during);
}

std::span<std::byte> TransportCollectives::received(int rank, size_t bytes) {
  const size_t others = link_.size() - 1;
  const size_t index = rank < link_.rank() ? rank : rank - 1;
  if (received_.size() < others * bytes) received_.resize(others * bytes);
  return std::span(received_).subspan(index * bytes, bytes);
}

void TransportCollectives::sum(const OperationHeader& header, std::span<const std::byte> own, std::byte* to) {
  std::vector<const void*> from;
  for (int rank = 0; rank < link_.size(); ++rank)
    from.push_back(rank == link_.rank() ? own.data() : received(rank, own.size()).data());
  void* const targets[] = {to};
  reduce(header.dtype, header.reduce, from, targets, static_cast<int64_t>(own.size()) / size_of(header.dtype));
}

}  // namespace trivet::comm
