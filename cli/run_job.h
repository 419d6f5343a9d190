// Where the ranks of a command come from: threads of this process (--ranks N), or this process as one rank that a launcher
// started.
#pragma once

#include <functional>

#include "comm/world.h"
#include "engine/config/config.h"

namespace trivet::cli {

struct RankBody {
  comm::World& world;
  int threads;     // that this rank's kernels may use
  int local_rank;  // among the ranks of this host
};

// Cores that this process may use / ranks, at least 1; OMP_NUM_THREADS when the user chose it (ConfigError if it is no number).
int threads_per_rank(int local_ranks);

// ranks 0: one rank, found through the environment (a job of one when there is none). ConfigError for ranks > 0 inside a
// job of several processes: each would run a whole job.
void run_job(int ranks, const std::function<void(RankBody)>& body);

}  // namespace trivet::cli
