// Integers, maxima and tree sums over hosts, and sums of floats if the job chose so: each host combines its own ranks, and then
// the hosts exchange what they have; see [Note: sums over hosts].
#include <memory>

#include "comm/chunks.h"
#include "comm/element_range.h"
#include "comm/hosts/hosts_collectives.h"
#include "comm/reduce.h"

namespace trivet::comm {
namespace {

// What hosts have combined, of a few chunks at a time.
class HostTerms {
 public:
  HostTerms(int64_t chunks, int hosts, int64_t bytes)
      : chunks_(chunks), hosts_(hosts), bytes_(bytes), memory_(new std::byte[static_cast<size_t>(chunks * hosts * bytes)]) {}
  std::byte* at(int64_t chunk, int host) { return memory_.get() + (chunk % chunks_ * hosts_ + host) * bytes_; }
  // Combines those of all hosts, in their order, and rounds.
  void combine(const OperationHeader& header, int64_t chunk, std::byte* to, int64_t count) {
    std::vector<const void*> from;
    for (int host = 0; host < hosts_; ++host) from.push_back(at(chunk, host));
    void *const sum[] = {at(chunk, 0)}, *const rounded[] = {to};
    reduce(sum_type(header.dtype), header.reduce, from, sum, count);
    round_sum(header.dtype, at(chunk, 0), rounded, count);
  }

 private:
  int64_t chunks_, hosts_, bytes_;
  std::unique_ptr<std::byte[]> memory_;  // not zeroed: everything is written before it is read
};

}  // namespace

// Each of the parts in which the ranks of a line share a chunk is shared further by the hosts.
HostsCollectives::Stages HostsCollectives::exchange_all_reduce(const Call& call, HostMessages& messages) {
  const HostMap& map = side_.map;
  const OperationHeader header = call.header;
  const Cut cut = cut_for(header, side_.board.slot_bytes());
  const int64_t sum_bytes = size_of(sum_type(header.dtype));
  const auto part = [cut, drivers = map.fewest()](int64_t chunk, int driver) {
    return part_of(cut.count(chunk), cut.element_bytes, driver, drivers);
  };
  // The elements of this rank's part that a host finishes, counted from the start of the chunk.
  const auto share = [=, this](int64_t chunk, int host) {
    const ElementRange all = part(chunk, line()), range = part_of(all.count, cut.element_bytes, host, map.hosts());
    return ElementRange{all.first + range.first, range.count};
  };
  const auto here = [=, data = static_cast<std::byte*>(call.out.data)](int64_t chunk, const ElementRange& range) {
    return bytes(data + cut.offset(chunk) + range.first * cut.element_bytes, range.count * cut.element_bytes);
  };
  std::vector<std::pair<int, int>> others;  // hosts, and the ranks there that communicate with this one
  for (int host = 0; host < map.hosts(); ++host)
    if (drives() && host != map.host) others.emplace_back(host, partner(host));
  const int64_t largest = drives() ? part_of(part(0, 0).count, cut.element_bytes, 0, map.hosts()).count * sum_bytes : 0;
  const int64_t ahead = steps_ahead(cut), posted = ahead + 1;
  const auto kept = [&](int64_t chunks) {
    return messages.keep(std::make_shared<HostTerms>(std::min(chunks, cut.chunks()), map.hosts(), largest));
  };
  const auto terms = kept(ahead + posted + 1);  // of this host's share, from all hosts
  const auto leaving = kept(ahead + 1);         // this host's, of the others' shares

  // What the others send in the step in which they combine this chunk, in that order: terms, and the result of an earlier one.
  const auto post = [=, &messages](int64_t chunk) {
    for (const auto& [host, rank] : others) {
      if (cut.has(chunk)) messages.post(rank, bytes(terms->at(chunk, host), share(chunk, map.host).count * sum_bytes));
      if (cut.has(chunk - ahead)) messages.post(rank, here(chunk - ahead, share(chunk - ahead, host)));
    }
  };
  for (int64_t chunk = 0; chunk < posted; ++chunk) post(chunk);
  const auto fill = [=, this, data = static_cast<const std::byte*>(call.out.data)](int64_t chunk) {
    copy_bytes(slot(line(), chunk), data + cut.offset(chunk), cut.bytes(chunk));
  };
  const auto combine = [=, this, &messages](int64_t chunk) {
    if (!drives()) return;
    const auto combine_share = [&](int host, std::byte* to) {
      const ElementRange range = share(chunk, host);
      std::vector<const void*> from;
      for (int rank = 0; rank < lines(); ++rank) from.push_back(slot(rank, chunk) + range.first * cut.element_bytes);
      reduce_part(header.dtype, header.reduce, nullptr, from, to, range.count);
      return range.count * sum_bytes;
    };
    post(chunk + posted);
    combine_share(map.host, terms->at(chunk, map.host));
    for (const auto& [host, rank] : others) {
      const int64_t count = combine_share(host, leaving->at(chunk, host));
      messages.send(rank, bytes(leaving->at(chunk, host), count));
    }
  };
  const auto finish = [=, this, &messages](int64_t chunk) {
    if (!drives()) return;
    const ElementRange mine = share(chunk, map.host);
    for (const auto& [host, rank] : others) messages.await(rank);
    terms->combine(header, chunk, here(chunk, mine).data(), mine.count);
    for (const auto& [host, rank] : others) messages.send(rank, here(chunk, mine));
  };
  const auto collect = [=, this, &messages](int64_t chunk) {
    if (!drives()) return;
    for (const auto& [host, rank] : others) messages.await(rank);
    const ElementRange range = part(chunk, line());
    copy_bytes(result(line(), chunk) + range.first * cut.element_bytes, here(chunk, range).data(),
               range.count * cut.element_bytes);
  };
  const auto drain = [=, this](int64_t chunk) {
    for (int driver = 0; driver < map.fewest(); ++driver) {
      const ElementRange range = part(chunk, driver);
      if (driver != line())
        copy_bytes(here(chunk, range).data(), result(driver, chunk) + range.first * cut.element_bytes,
                   range.count * cut.element_bytes);
    }
  };
  const int64_t back = 1 + 2 * ahead;
  return {cut.chunks(), {{0, fill}, {1, combine}, {1 + ahead, finish}, {back, collect}, {back + 1, drain}}, ahead};
}

// A slot has one piece for every rank of the group. What a host has combined goes to the owner of the shard.
HostsCollectives::Stages HostsCollectives::exchange_reduce_scatter(const Call& call, HostMessages& messages) {
  const HostMap& map = side_.map;
  const OperationHeader header = call.header;
  const int size = side_.link.size(), self = side_.link.rank(), drivers = map.fewest();
  const int64_t sum_bytes = size_of(sum_type(header.dtype));
  const Cut cut = cut_for(header, side_.board.slot_bytes() / size * size_of(header.dtype) / sum_bytes);
  const int64_t stride = cut.chunk * cut.element_bytes, sum_stride = cut.chunk * sum_bytes;
  std::vector<int> shards;  // that this rank combines
  for (int rank = line(); drives() && rank < size; rank += drivers) shards.push_back(rank);
  std::vector<std::pair<int, int>> givers;  // other hosts, and the ranks there that combine this rank's shard
  for (int host = 0; host < map.hosts(); ++host)
    if (host != map.host) givers.emplace_back(host, map.ranks[host][self % drivers]);
  const int64_t ahead = steps_ahead(cut), posted = ahead + 2;
  const auto kept = [&](int64_t chunks, size_t of_each) {
    return messages.keep(
        std::make_shared<HostTerms>(std::min(chunks, cut.chunks()), static_cast<int>(of_each), cut.count(0) * sum_bytes));
  };
  const auto terms = kept(ahead + posted + 1, map.ranks.size());  // of this rank's shard
  const auto leaving = kept(ahead + 1, shards.size());

  const auto post = [=, &messages](int64_t chunk) {
    for (const auto& [host, rank] : givers)
      if (cut.has(chunk)) messages.post(rank, bytes(terms->at(chunk, host), cut.count(chunk) * sum_bytes));
  };
  for (int64_t chunk = 0; chunk < posted; ++chunk) post(chunk);
  const auto fill = [=, this, whole = static_cast<const std::byte*>(call.in.data)](int64_t chunk) {
    for (int rank = 0; rank < size; ++rank)
      copy_bytes(slot(line(), chunk) + rank * stride, whole + rank * cut.total * cut.element_bytes + cut.offset(chunk),
                 cut.bytes(chunk));
  };
  const auto combine = [=, this, &messages](int64_t chunk) {
    post(chunk + posted);
    const std::vector<int>& here = map.here();
    for (size_t i = 0; i < shards.size(); ++i) {
      const auto found = std::find(here.begin(), here.end(), shards[i]);
      std::byte* to = found == here.end() ? leaving->at(chunk, static_cast<int>(i))
                                          : result(line(), chunk) + (found - here.begin()) * sum_stride;
      std::vector<const void*> from;
      for (int rank = 0; rank < lines(); ++rank) from.push_back(slot(rank, chunk) + shards[i] * stride);
      reduce_part(header.dtype, header.reduce, nullptr, from, to, cut.count(chunk));
      if (found == here.end()) messages.send(shards[i], bytes(to, cut.count(chunk) * sum_bytes));
    }
  };
  const auto keep = [=, this](int64_t chunk) {
    copy_bytes(terms->at(chunk, map.host), result(self % drivers, chunk) + line() * sum_stride, cut.count(chunk) * sum_bytes);
  };
  const auto drain = [=, &messages, shard = static_cast<std::byte*>(call.out.data)](int64_t chunk) {
    for (const auto& [host, rank] : givers) messages.await(rank);
    terms->combine(header, chunk, shard + cut.offset(chunk), cut.count(chunk));
  };
  return {cut.chunks(), {{0, fill}, {1, combine}, {2, keep}, {1 + ahead, drain}}, ahead};
}

}  // namespace trivet::comm
