// Integers, maxima and tree sums over hosts, and sums of floats if the job chose so: each host combines its own ranks, and then
// the hosts exchange what they have; see [Note: sums over hosts].
#include <memory>

#include "comm/chunks.h"
#include "comm/element_range.h"
#include "comm/hosts/host_terms.h"
#include "comm/hosts/hosts_collectives.h"
#include "comm/reduce.h"

namespace trivet::comm {

// Each of the parts in which the ranks of a line share a chunk is shared further by the hosts: a host finishes its share and
// gets the others' results. One rank's work:
//
//   fill      copies the chunk into this rank's slot
//   combine   combines this part of the ranks here; keeps the term of this host's share, and sends the others theirs
//   finish    combines the terms of this host's share from all hosts, and sends the result to the others
//   collect   waits for the results of the other shares, and shows the part to the ranks here
//   drain     copies the other parts, which other ranks of this host have shown
class HostsCollectives::ExchangedAllReduce {
 public:
  // Posts the first receives. All three must outlive this object.
  ExchangedAllReduce(const HostsCollectives& ranks, const Call& call, HostMessages& messages);
  Stages stages();

 private:
  void post(int64_t chunk);
  void fill(int64_t chunk) const;
  void combine(int64_t chunk);
  void finish(int64_t chunk);
  void collect(int64_t chunk);
  void drain(int64_t chunk) const;

  std::shared_ptr<HostTerms> terms_of(int64_t chunks) const;
  // Writes what the ranks here have of a host's share, not rounded. Returns its bytes.
  int64_t combine_share(int64_t chunk, int host, std::byte* to) const;
  // The elements for which a rank of each host is responsible, counted from the start of the chunk.
  ElementRange part(int64_t chunk, int line) const {
    return part_of(cut_.count(chunk), cut_.element_bytes, line, map_.fewest());
  }
  // Returns the elements of this rank's part that a host finishes.
  ElementRange share(int64_t chunk, int host) const;
  std::span<std::byte> in_tensor(int64_t chunk, const ElementRange& range) const {
    return bytes(data_ + cut_.offset(chunk) + range.first * cut_.element_bytes, range.count * cut_.element_bytes);
  }

  const HostsCollectives& ranks_;
  const HostMap& map_;
  const OperationHeader header_;
  HostMessages& messages_;
  const Cut cut_;
  std::byte* const data_;
  const int64_t sum_bytes_;
  const int64_t ahead_, posted_;             // steps from a send to its wait; chunks whose receives are posted
  std::vector<std::pair<int, int>> others_;  // hosts, and the ranks there that communicate with this one
  std::shared_ptr<HostTerms> terms_;         // terms for this host's share, from all hosts
  std::shared_ptr<HostTerms> leaving_;       // this host's terms for the others' shares
};

HostsCollectives::ExchangedAllReduce::ExchangedAllReduce(const HostsCollectives& ranks, const Call& call,
                                                         HostMessages& messages)
    : ranks_(ranks),
      map_(ranks.side_.map),
      header_(call.header),
      messages_(messages),
      cut_(cut_for(header_, ranks.side_.board.slot_bytes())),
      data_(static_cast<std::byte*>(call.out.data)),
      sum_bytes_(size_of(sum_type(header_.dtype))),
      ahead_(steps_ahead(cut_)),
      posted_(ahead_ + 1) {
  for (int host = 0; host < map_.hosts(); ++host)
    if (ranks_.drives() && host != map_.host) others_.emplace_back(host, ranks_.partner(host));
  terms_ = messages_.keep(terms_of(ahead_ + posted_ + 1));
  leaving_ = messages_.keep(terms_of(ahead_ + 1));
  for (int64_t chunk = 0; chunk < posted_; ++chunk) post(chunk);
}

HostsCollectives::Stages HostsCollectives::ExchangedAllReduce::stages() {
  const int64_t back = 1 + 2 * ahead_;
  return {cut_.chunks(),
          {{0, [this](int64_t chunk) { fill(chunk); }},
           {1, [this](int64_t chunk) { combine(chunk); }},
           {1 + ahead_, [this](int64_t chunk) { finish(chunk); }},
           {back, [this](int64_t chunk) { collect(chunk); }},
           {back + 1, [this](int64_t chunk) { drain(chunk); }}},
          ahead_};
}

std::shared_ptr<HostTerms> HostsCollectives::ExchangedAllReduce::terms_of(int64_t chunks) const {
  const int64_t largest =
      ranks_.drives() ? part_of(part(0, 0).count, cut_.element_bytes, 0, map_.hosts()).count * sum_bytes_ : 0;
  return std::make_shared<HostTerms>(std::min(chunks, cut_.chunks()), map_.hosts(), largest);
}

ElementRange HostsCollectives::ExchangedAllReduce::share(int64_t chunk, int host) const {
  const ElementRange all = part(chunk, ranks_.line()), range = part_of(all.count, cut_.element_bytes, host, map_.hosts());
  return {all.first + range.first, range.count};
}

// Posts the receives of the step in which this chunk is combined: terms, then the result of an earlier chunk.
void HostsCollectives::ExchangedAllReduce::post(int64_t chunk) {
  for (const auto& [host, rank] : others_) {
    if (cut_.has(chunk)) messages_.post(rank, bytes(terms_->at(chunk, host), share(chunk, map_.host).count * sum_bytes_));
    if (cut_.has(chunk - ahead_)) messages_.post(rank, in_tensor(chunk - ahead_, share(chunk - ahead_, host)));
  }
}

void HostsCollectives::ExchangedAllReduce::fill(int64_t chunk) const {
  copy_bytes(ranks_.slot(ranks_.line(), chunk), data_ + cut_.offset(chunk), cut_.bytes(chunk));
}

int64_t HostsCollectives::ExchangedAllReduce::combine_share(int64_t chunk, int host, std::byte* to) const {
  const ElementRange range = share(chunk, host);
  std::vector<const void*> from;
  for (int line = 0; line < ranks_.lines(); ++line) from.push_back(ranks_.slot(line, chunk) + range.first * cut_.element_bytes);
  reduce_part(header_.dtype, header_.reduce, nullptr, from, to, range.count);
  return range.count * sum_bytes_;
}

void HostsCollectives::ExchangedAllReduce::combine(int64_t chunk) {
  if (!ranks_.drives()) return;
  post(chunk + posted_);
  combine_share(chunk, map_.host, terms_->at(chunk, map_.host));
  for (const auto& [host, rank] : others_) {
    std::byte* const term = leaving_->at(chunk, host);
    messages_.send(rank, bytes(term, combine_share(chunk, host, term)));
  }
}

void HostsCollectives::ExchangedAllReduce::finish(int64_t chunk) {
  if (!ranks_.drives()) return;
  const ElementRange mine = share(chunk, map_.host);
  for (const auto& [host, rank] : others_) messages_.await(rank);
  terms_->combine(header_, chunk, in_tensor(chunk, mine).data(), mine.count);
  for (const auto& [host, rank] : others_) messages_.send(rank, in_tensor(chunk, mine));
}

void HostsCollectives::ExchangedAllReduce::collect(int64_t chunk) {
  if (!ranks_.drives()) return;
  for (const auto& [host, rank] : others_) messages_.await(rank);
  const ElementRange range = part(chunk, ranks_.line());
  copy_bytes(ranks_.result(ranks_.line(), chunk) + range.first * cut_.element_bytes, in_tensor(chunk, range).data(),
             range.count * cut_.element_bytes);
}

void HostsCollectives::ExchangedAllReduce::drain(int64_t chunk) const {
  for (int line = 0; line < map_.fewest(); ++line) {
    const ElementRange range = part(chunk, line);
    if (line != ranks_.line())
      copy_bytes(in_tensor(chunk, range).data(), ranks_.result(line, chunk) + range.first * cut_.element_bytes,
                 range.count * cut_.element_bytes);
  }
}

HostsCollectives::Stages HostsCollectives::exchange_all_reduce(const Call& call, HostMessages& messages) {
  return messages.keep(std::make_shared<ExchangedAllReduce>(*this, call, messages))->stages();
}

// A slot has one piece for every rank of the group. The owner of a shard gets what a host has combined.
HostsCollectives::Stages HostsCollectives::exchange_reduce_scatter(const Call& call, HostMessages& messages) {
  const HostMap& map = side_.map;
  const OperationHeader header = call.header;
  const int size = side_.link.size(), self = side_.link.rank(), drivers = map.fewest();
  const int64_t sum_bytes = size_of(sum_type(header.dtype));
  const Cut cut = cut_for(header, side_.board.slot_bytes() / size * size_of(header.dtype) / sum_bytes);
  const int64_t stride = cut.chunk * cut.element_bytes, sum_stride = cut.chunk * sum_bytes;
  std::vector<int> shards;  // shards that this rank combines
  for (int rank = line(); drives() && rank < size; rank += drivers) shards.push_back(rank);
  std::vector<std::pair<int, int>> givers;  // other hosts, and the ranks there that combine this rank's shard
  for (int host = 0; host < map.hosts(); ++host)
    if (host != map.host) givers.emplace_back(host, map.ranks[host][self % drivers]);
  const int64_t ahead = steps_ahead(cut), posted = ahead + 2;
  const auto kept = [&](int64_t chunks, size_t of_each) {
    return messages.keep(
        std::make_shared<HostTerms>(std::min(chunks, cut.chunks()), static_cast<int>(of_each), cut.count(0) * sum_bytes));
  };
  const auto terms = kept(ahead + posted + 1, map.ranks.size());  // terms for this rank's shard
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
