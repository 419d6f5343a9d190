// The world of ranks that are processes of one host: operations run over shared memory.
//
//   rank 0: create  -> barrier ("exists") ->        -> barrier ("attached") -> unlink
//   others:            barrier            -> attach -> barrier
//
// `segment_name` begins with "/trivet-<job id>-", so that a launcher can unlink what a kill in between left behind; after that,
// nothing has a name. Subgroups create their own segments, whose names begin with segment_name.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/job_state.h"
#include "comm/world.h"

namespace trivet::comm {

struct ShmPlace {
  int rank = 0, size = 1;
  std::string segment_name;  // "/trivet-<job id>-<anything>", at most 200 characters, not in use
  std::string host;          // for errors
  // Returns on every rank when all ranks have called it (the rendezvous' barrier). Called once to say "exists" (the creator
  // calls it after creating, others before attaching) and once to say "attached"; throws CommError when a rank is missing.
  std::function<void()> barrier;
};

// Rank 0 creates the segment. The world looks at `job` in every wait: whoever notices that a peer died accuses it there.
std::unique_ptr<World> make_shm_world(const ShmPlace& place, const WorldOptions& options, std::shared_ptr<JobState> job);

}  // namespace trivet::comm
