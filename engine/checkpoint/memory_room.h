// How much memory the steps take that each host keeps in memory, and how much there is.
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
  int64_t available = 0;  // bytes: free, or taken by steps that are there
  int64_t left() const { return available - needed; }
};

// Of files of a rank, without their headers.
int64_t bytes_of(std::span<const Piece> pieces);
// What each host keeps, by what each rank saves. `replicas` as in CheckpointStoreOptions.
std::vector<int64_t> bytes_by_host(const std::vector<int64_t>& bytes_of_ranks, const JobHosts& hosts, int replicas);
// Collective: by host. `saved` is what this rank saves; `directory` that of the steps.
std::vector<MemoryRoom> gather_room(FileSystem& files, const std::string& directory, int64_t saved, const Participants& ranks,
                                    const JobHosts& hosts, int replicas);

}  // namespace trivet::checkpoint
