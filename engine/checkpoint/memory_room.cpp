#include "engine/checkpoint/memory_room.h"

#include <fmt/format.h>

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

std::vector<MemoryRoom> gather_room(FileSystem& files, const std::string& directory, int64_t saved, const Participants& ranks,
                                    const JobHosts& hosts, int replicas) {
  const auto texts = together(ranks, [&] {
    return fmt::format("{} {}", saved, hosts.leads() ? files.free_bytes(directory) + bytes_below(files, directory) : 0);
  });
  std::vector<int64_t> bytes_of_ranks(ranks.size), available(ranks.size);
  for (int rank = 0; rank < ranks.size; ++rank) std::istringstream(texts[rank]) >> bytes_of_ranks[rank] >> available[rank];
  const auto kept = bytes_by_host(bytes_of_ranks, hosts, replicas);
  std::vector<MemoryRoom> rooms;
  for (int host = 0; host < hosts.count(); ++host)
    rooms.push_back({.needed = 2 * kept[host], .available = available[hosts.map.ranks[host].front()]});
  return rooms;
}

}  // namespace trivet::checkpoint
