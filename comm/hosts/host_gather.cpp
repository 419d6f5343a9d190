// all_gather and broadcast over hosts.
#include "comm/chunks.h"
#include "comm/hosts/hosts_collectives.h"

namespace trivet::comm {
namespace {

// The ranks whose shards the rank of this host and line puts into its slot: its own, and those that other hosts send it.
std::vector<int> carried_by(const HostMap& map, int host, int line) {
  const int lines = static_cast<int>(map.ranks[host].size());
  std::vector<int> carried{map.ranks[host][line]};
  for (int other = 0; other < map.hosts(); ++other) {
    const std::vector<int>& there = map.ranks[other];
    if (other == host) continue;
    for (int from = line; from < static_cast<int>(there.size()); from += lines) carried.push_back(there[from]);
  }
  return carried;
}

// Returns how many shards a slot needs room for, over all ranks.
size_t most_carried(const HostMap& map) {
  size_t most = 0;
  for (int host = 0; host < map.hosts(); ++host) most = std::max(most, carried_by(map, host, 0).size());
  return most;
}

std::byte* bytes_at(TensorView tensor, int64_t offset) { return static_cast<std::byte*>(tensor.data) + offset; }

}  // namespace

// Each rank sends its shard once to every other host, to a rank there that puts it into its slot for the others.
HostsCollectives::Stages HostsCollectives::all_gather(const Call& call, HostMessages& messages) {
  const HostMap& map = side_.map;
  const auto room = static_cast<int64_t>(most_carried(map));
  const Cut cut = cut_for(call.header, side_.board.slot_bytes() / room);
  const int64_t stride = cut.chunk * cut.element_bytes, shard_bytes = cut.total * cut.element_bytes;
  const int64_t ahead = std::min(steps_ahead(cut), cut.chunks() - 1), posted = 2 * ahead + 2;  // chunks of each shard
  const int self = side_.link.rank();
  const auto in_whole = [=, whole = call.out](int rank, int64_t chunk) {
    return bytes_at(whole, rank * shard_bytes + cut.offset(chunk));
  };
  std::vector<std::vector<int>> carried;  // by line
  for (int from = 0; from < lines(); ++from) carried.push_back(carried_by(map, map.host, from));
  std::vector<int> targets;
  for (int host = 0; host < map.hosts(); ++host)
    if (host != map.host) targets.push_back(map.ranks[host][line() % static_cast<int>(map.ranks[host].size())]);

  const auto post = [=, &messages, mine = carried[line()]](int64_t chunk) {
    for (int rank : mine)
      if (rank != self && chunk < cut.chunks()) messages.post(rank, bytes(in_whole(rank, chunk), cut.bytes(chunk)));
  };
  for (int64_t chunk = 0; chunk < posted; ++chunk) post(chunk);
  const auto own = [=, shard = static_cast<const std::byte*>(call.in.data)](int64_t chunk) {
    return bytes(shard + cut.offset(chunk), cut.bytes(chunk));
  };
  const auto give = [=, &messages](int64_t chunk) {
    for (int to : targets) messages.send(to, own(chunk));
  };
  const auto fetch = [=, this, &messages, mine = carried[line()]](int64_t chunk) {
    copy_bytes(in_whole(self, chunk), own(chunk).data(), cut.bytes(chunk));
    for (size_t i = 0; i < mine.size(); ++i) {
      if (mine[i] != self) messages.await(mine[i]);
      copy_bytes(slot(line(), chunk) + static_cast<int64_t>(i) * stride, in_whole(mine[i], chunk), cut.bytes(chunk));
    }
    post(chunk + posted);
  };
  const auto drain = [=, this](int64_t chunk) {
    for (int from = 0; from < lines(); ++from)
      for (size_t i = 0; from != line() && i < carried[from].size(); ++i)
        copy_bytes(in_whole(carried[from][i], chunk), slot(from, chunk) + static_cast<int64_t>(i) * stride, cut.bytes(chunk));
  };
  return {cut.chunks(), {{0, give}, {ahead, fetch}, {ahead + 1, drain}}, ahead};
}

// The data passes from host to host, along ranks of one line, and each of them puts it into its slot for the others.
HostsCollectives::Stages HostsCollectives::broadcast(const Call& call, HostMessages& messages) {
  const HostMap& map = side_.map;
  const Cut cut = cut_for(call.header, side_.board.slot_bytes());
  int root_host = 0, root_line = 0;
  for (int host = 0; host < map.hosts(); ++host)
    for (size_t i = 0; i < map.ranks[host].size(); ++i)
      if (map.ranks[host][i] == call.header.root) root_host = host, root_line = static_cast<int>(i);
  const auto relay_of = [&](int host) { return root_line % static_cast<int>(map.ranks[host].size()); };
  const int relay = relay_of(map.host), distance = (map.host - root_host + map.hosts()) % map.hosts();
  const int before = (map.host + map.hosts() - 1) % map.hosts(), after = (map.host + 1) % map.hosts();
  const int from = distance == 0 ? -1 : map.ranks[before][relay_of(before)];
  const int to = distance == map.hosts() - 1 ? -1 : map.ranks[after][relay_of(after)];

  const auto piece = [=, data = call.out](int64_t chunk) { return bytes(bytes_at(data, cut.offset(chunk)), cut.bytes(chunk)); };
  constexpr int64_t kPosted = 4;
  const auto post = [=, this, &messages](int64_t chunk) {
    if (line() == relay && from >= 0 && chunk < cut.chunks()) messages.post(from, piece(chunk));
  };
  for (int64_t chunk = 0; chunk < kPosted; ++chunk) post(chunk);
  const auto fetch = [=, this, &messages](int64_t chunk) {
    if (line() != relay) return;
    if (from >= 0) messages.await(from);
    if (to >= 0) messages.send(to, piece(chunk));
    copy_bytes(slot(relay, chunk), piece(chunk).data(), cut.bytes(chunk));
    post(chunk + kPosted);
  };
  const auto drain = [=, this](int64_t chunk) {
    if (line() != relay) copy_bytes(piece(chunk).data(), slot(relay, chunk), cut.bytes(chunk));
  };
  return {cut.chunks(), {{0, fetch}, {1, drain}}};
}

}  // namespace trivet::comm
