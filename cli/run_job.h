// Runs a command's ranks: as threads of this process (--ranks N), or with this process as the one rank that a launcher started.
#pragma once

#include <functional>

#include "comm/world.h"
#include "engine/config/config.h"

namespace trivet::cli {

struct RankBody {
  comm::World& world;
  int threads;     // for this rank's kernels
  int local_rank;  // among the ranks of this host
};

// The number of cores that this process may use, divided by the number of ranks, but at least 1. OMP_NUM_THREADS overrides it
// (ConfigError if that is not a number).
int threads_per_rank(int local_ranks);

// Returns options for how the config's ranks find, reach and wait for each other.
comm::WorldOptions world_options(const CommunicationConfig& communication);

// Checks whether this process is a task that is no rank (comm::idle_task). Prints why; the command should then end.
bool is_idle_task();

// With ranks = 0 this process is one rank, which the environment describes (a job of one rank if it describes none). Throws
// ConfigError for ranks > 0 inside a job of several processes, because each of them would run a job of its own.
void run_job(int ranks, const CommunicationConfig& communication, const std::function<void(RankBody)>& body);

}  // namespace trivet::cli
