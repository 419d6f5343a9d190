// Computes how much memory the steps take that each host keeps in memory, and how much there is.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "engine/checkpoint/job_hosts.h"
#include "engine/checkpoint/piece.h"
#include "engine/checkpoint/together.h"

namespace trivet::checkpoint {

struct MemoryRoom {
  int64_t needed = 0;     // bytes: the step that is kept, and the one that is being written
  int64_t available = 0;  // bytes
  int64_t left() const { return available - needed; }
};

// Returns the size of a rank's files, without their headers.
int64_t bytes_of(std::span<const Piece> pieces);
// Returns how much each host keeps, given how much each rank saves. `replicas` as in CheckpointStoreOptions.
std::vector<int64_t> bytes_by_host(const std::vector<int64_t>& bytes_of_ranks, const JobHosts& hosts, int replicas);
// Returns how many bytes steps may take on this host: those that are free both in the file system of their directory
// and in the host's memory (`host_bytes`, core/host_memory.h), and those in the directory already, which give way.
int64_t room_for_steps(FileSystem& files, const std::string& directory, int64_t host_bytes);
// Collective. Returns the room by host. `saved`: what this rank saves; `available`, on leaders: room_for_steps there.
std::vector<MemoryRoom> gather_room(int64_t saved, int64_t available, const Participants& ranks, const JobHosts& hosts,
                                    int replicas);

}  // namespace trivet::checkpoint
