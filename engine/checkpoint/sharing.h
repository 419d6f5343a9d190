// Checks whether the hosts of a job share a directory of checkpoints.
#pragma once

#include "engine/checkpoint/store_directory.h"

namespace trivet::checkpoint {

// Called by all ranks. Throws ConfigError if hosts share the directory although each needs its own (replicas, in memory), or do
// not share it although they must.
void check_sharing(StoreDirectory& directory, const Participants& ranks);

}  // namespace trivet::checkpoint
