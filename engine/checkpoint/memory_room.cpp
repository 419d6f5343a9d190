#include "engine/checkpoint/memory_room.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "engine/checkpoint/host_copies.h"

namespace trivet::checkpoint {
namespace {

int64_t bytes_below(FileSystem& files, const std::string& path) {
  int64_t bytes = 0;
  for (const DirectoryEntry& entry : files.list(path)) {
    const std::string child = path + "/" + entry.name;
    if (entry.kind == EntryKind::Directory) bytes += bytes_below(files, child);
    if (entry.kind == EntryKind::File) bytes += files.open(child)->size();
  }
  return bytes;
}

}  // namespace

int64_t bytes_of(std::span<const Piece> pieces) {
  int64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.data.bytes();
  return bytes;
}

std::vector<int64_t> bytes_by_host(const std::vector<int64_t>& bytes_of_ranks, const JobHosts& hosts, int replicas) {
  std::vector<int64_t> bytes(hosts.count());
  for (size_t rank = 0; rank < bytes_of_ranks.size(); ++rank)
    for (int host : holders_of(static_cast<int>(rank), hosts, replicas)) bytes[host] += bytes_of_ranks[rank];
  return bytes;
}

int64_t room_for_steps(FileSystem& files, const std::string& directory, int64_t host_bytes) {
  return std::min(files.free_bytes(directory), host_bytes) + bytes_below(files, directory);
}

std::vector<MemoryRoom> gather_room(int64_t saved, int64_t available, const Participants& ranks, const JobHosts& hosts,
                                    int replicas) {
  const auto texts = together(ranks, [&] { return fmt::format("{} {}", saved, available); });
  std::vector<int64_t> bytes_of_ranks(ranks.size), room_of_ranks(ranks.size);
  for (int rank = 0; rank < ranks.size; ++rank) std::istringstream(texts[rank]) >> bytes_of_ranks[rank] >> room_of_ranks[rank];
  const auto kept = bytes_by_host(bytes_of_ranks, hosts, replicas);
  std::vector<MemoryRoom> rooms;
  for (int host = 0; host < hosts.count(); ++host)
    rooms.push_back({.needed = 2 * kept[host], .available = room_of_ranks[hosts.map.ranks[host].front()]});
  return rooms;
}

}  // namespace trivet::checkpoint
