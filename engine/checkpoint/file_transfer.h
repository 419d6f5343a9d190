// Copies files from rank to rank, in rounds of one chunk for each pair of ranks: the memory does not depend on the size of the
// files.
//
//   round 0   rank 1 -> rank 3: chunk 0 of a    rank 3 -> rank 5: chunk 0 of b ...
//   round 1   rank 1 -> rank 3: chunk 1 of a    ...
#pragma once

#include <string>
#include <vector>

#include "core/file_system.h"
#include "engine/checkpoint/job_hosts.h"
#include "engine/checkpoint/together.h"

namespace trivet::checkpoint {

inline constexpr int64_t kTransferBytes = int64_t{4} << 20;  // size of a chunk

struct FileTransfer {
  int from = 0, to = 0;        // ranks
  std::string source, target;  // paths, on their hosts
  int64_t bytes = 0;           // size of the file
  uint64_t xxh3 = 0;           // hash of its contents
};

// Collective: all ranks give the same list. The targets are written and synced, their directories are not. If a file cannot be
// read or written, or its contents have another hash on arrival, all ranks throw the same CheckpointError once all rounds are
// done.
void transfer(FileSystem& files, const Participants& ranks, const JobHosts& hosts, const std::vector<FileTransfer>& transfers);

}  // namespace trivet::checkpoint
