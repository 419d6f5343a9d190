// Sums of floats over hosts in rank order, made host after host; see [Note: sums over hosts].
#include <memory>

#include "comm/chunks.h"
#include "comm/element_range.h"
#include "comm/hosts/hosts_collectives.h"
#include "comm/reduce.h"

namespace trivet::comm {
namespace {

// Sums on their way from one host to the next: memory for those of a few chunks.
class SumBuffers {
 public:
  SumBuffers(int64_t chunks, int64_t bytes) : chunks_(chunks), bytes_(bytes), memory_(static_cast<size_t>(chunks * bytes)) {}
  std::byte* at(int64_t chunk) { return memory_.data() + chunk % chunks_ * bytes_; }
  int64_t chunks() const { return chunks_; }

 private:
  int64_t chunks_, bytes_;
  std::vector<std::byte> memory_;
};

constexpr int64_t kSumsPosted = 3;  // chunks whose sums may arrive from the host before

}  // namespace

// The rank that sums a part keeps it in its tensor; its result goes there and into its result slot, where the ranks here fetch
// it.
HostsCollectives::Stages HostsCollectives::chain_all_reduce(const Call& call, HostMessages& messages) {
  const HostMap& map = side_.map;
  const OperationHeader header = call.header;
  const Cut cut = cut_for(header, side_.board.slot_bytes());
  const int64_t sum_bytes = size_of(sum_type(header.dtype));
  const bool first = map.host == 0, last = map.host + 1 == map.hosts();
  const int before = drives() && !first ? partner(map.host - 1) : -1, after = drives() && !last ? partner(map.host + 1) : -1;
  const auto part = [cut, drivers = map.fewest()](int64_t chunk, int driver) {
    return part_of(cut.count(chunk), cut.element_bytes, driver, drivers);
  };
  const auto mine = [=, this, data = static_cast<std::byte*>(call.out.data)](int64_t chunk) {
    const ElementRange range = part(chunk, line());
    return bytes(data + cut.offset(chunk) + range.first * cut.element_bytes, range.count * cut.element_bytes);
  };
  const int64_t largest = drives() ? part(0, 0).count * sum_bytes : 0;
  const auto arriving = messages.keep(std::make_shared<SumBuffers>(kSumsPosted, first ? 0 : largest));
  const auto sums = messages.keep(std::make_shared<SumBuffers>(1, largest));

  const auto post = [=, this, &messages](int64_t chunk) {
    if (before >= 0 && chunk < cut.chunks())
      messages.post(before, bytes(arriving->at(chunk), part(chunk, line()).count * sum_bytes));
  };
  for (int64_t chunk = 0; chunk < kSumsPosted; ++chunk) post(chunk);
  const auto fill = [=, this, data = static_cast<const std::byte*>(call.out.data)](int64_t chunk) {
    copy_bytes(slot(line(), chunk), data + cut.offset(chunk), cut.bytes(chunk));
  };
  const auto combine = [=, this, &messages](int64_t chunk) {
    if (!drives()) return;
    const ElementRange range = part(chunk, line());
    const int64_t offset = range.first * cut.element_bytes;
    if (before >= 0) messages.await(before);
    std::vector<const void*> from;
    for (int rank = 0; rank < lines(); ++rank) from.push_back(slot(rank, chunk) + offset);
    reduce_part(header.dtype, header.reduce, first ? nullptr : arriving->at(chunk), from, sums->at(chunk), range.count);
    post(chunk + kSumsPosted);
    if (after >= 0) {
      messages.post(after, mine(chunk));
      messages.send(after, bytes(sums->at(chunk), range.count * sum_bytes));
      return;
    }
    void* const to[] = {mine(chunk).data(), result(line(), chunk) + offset};
    round_sum(header.dtype, sums->at(chunk), to, range.count);
    if (before >= 0) messages.send(before, mine(chunk));
  };
  const auto collect = [=, this, &messages](int64_t chunk) {
    if (after < 0) return;
    messages.await(after);
    copy_bytes(result(line(), chunk) + part(chunk, line()).first * cut.element_bytes, mine(chunk).data(),
               static_cast<int64_t>(mine(chunk).size()));
    if (before >= 0) messages.send(before, mine(chunk));
  };
  const auto drain = [=, this, data = static_cast<std::byte*>(call.out.data)](int64_t chunk) {
    for (int driver = 0; driver < map.fewest(); ++driver) {
      const ElementRange range = part(chunk, driver);
      const int64_t offset = range.first * cut.element_bytes;
      if (driver != line())
        copy_bytes(data + cut.offset(chunk) + offset, result(driver, chunk) + offset, range.count * cut.element_bytes);
    }
  };
  const int64_t back = last ? 1 : 1 + 2 * (map.hosts() - 1 - map.host);  // steps until a result is here
  return {cut.chunks(), {{0, fill}, {1, combine}, {back, collect}, {back + 1, drain}}};
}

// A slot has one piece for every rank of the group. The last host sends each rank its shard.
HostsCollectives::Stages HostsCollectives::chain_reduce_scatter(const Call& call, HostMessages& messages) {
  const HostMap& map = side_.map;
  const OperationHeader header = call.header;
  const int size = side_.link.size(), self = side_.link.rank(), drivers = map.fewest();
  const Cut cut = cut_for(header, side_.board.slot_bytes() / size);
  const int64_t sum_bytes = size_of(sum_type(header.dtype)), stride = cut.chunk * cut.element_bytes;
  const bool first = map.host == 0, last = map.host + 1 == map.hosts();
  const int before = drives() && !first ? partner(map.host - 1) : -1, after = drives() && !last ? partner(map.host + 1) : -1;
  std::vector<int> shards;  // shards that this rank sums
  for (int rank = line(); drives() && rank < size; rank += drivers) shards.push_back(rank);
  const auto shard_count = static_cast<int64_t>(shards.size());
  const int giver = map.ranks.back()[self % drivers];  // has this rank's shard in the end

  const auto arriving =
      messages.keep(std::make_shared<SumBuffers>(kSumsPosted, first ? 0 : shard_count * cut.chunk * sum_bytes));
  const auto sums = messages.keep(std::make_shared<SumBuffers>(1, shard_count * cut.chunk * sum_bytes));
  const auto rounded = messages.keep(std::make_shared<SumBuffers>(1, last ? shard_count * stride : 0));
  const auto post = [=, &messages](int64_t chunk) {
    if (before >= 0 && chunk < cut.chunks())
      messages.post(before, bytes(arriving->at(chunk), shard_count * cut.count(chunk) * sum_bytes));
  };
  for (int64_t chunk = 0; chunk < kSumsPosted; ++chunk) post(chunk);
  const auto to_shard = [=, shard = static_cast<std::byte*>(call.out.data)](int64_t chunk) {
    return bytes(shard + cut.offset(chunk), cut.bytes(chunk));
  };
  const auto fill = [=, this, &messages, whole = static_cast<const std::byte*>(call.in.data)](int64_t chunk) {
    for (int rank = 0; rank < size; ++rank)
      copy_bytes(slot(line(), chunk) + rank * stride, whole + rank * cut.total * cut.element_bytes + cut.offset(chunk),
                 cut.bytes(chunk));
    if (!last) messages.post(giver, to_shard(chunk));
  };
  const auto finish = [=, this, &messages](int64_t chunk, int shard, const std::byte* sum, std::byte* room) {
    const std::vector<int>& here = map.here();
    const auto found = std::find(here.begin(), here.end(), shard);
    std::byte* to = found == here.end() ? room : result(line(), chunk) + (found - here.begin()) * stride;
    void* const targets[] = {to};
    round_sum(header.dtype, sum, targets, cut.count(chunk));
    if (found == here.end()) messages.send(shard, bytes(to, cut.bytes(chunk)));
  };
  const auto combine = [=, this, &messages](int64_t chunk) {
    if (!drives()) return;
    if (before >= 0) messages.await(before);
    for (int64_t i = 0; i < shard_count; ++i) {
      const int64_t at = i * cut.count(chunk) * sum_bytes;
      std::vector<const void*> from;
      for (int rank = 0; rank < lines(); ++rank) from.push_back(slot(rank, chunk) + shards[i] * stride);
      reduce_part(header.dtype, header.reduce, first ? nullptr : arriving->at(chunk) + at, from, sums->at(chunk) + at,
                  cut.count(chunk));
      if (last) finish(chunk, shards[i], sums->at(chunk) + at, rounded->at(chunk) + i * stride);
    }
    post(chunk + kSumsPosted);
    if (after >= 0) messages.send(after, bytes(sums->at(chunk), shard_count * cut.count(chunk) * sum_bytes));
  };
  const auto drain = [=, this, &messages](int64_t chunk) {
    if (!last) return messages.await(giver);
    copy_bytes(to_shard(chunk).data(), result(self % drivers, chunk) + line() * stride, cut.bytes(chunk));
  };
  const int64_t back = last ? 2 : 1 + 2 * (map.hosts() - 1 - map.host);
  return {cut.chunks(), {{0, fill}, {1, combine}, {back, drain}}};
}

}  // namespace trivet::comm
