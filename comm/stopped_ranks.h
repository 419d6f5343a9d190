// Finds ranks of this job that were stopped before they joined. Nobody knows their pids yet, and the others would wait for them
// until the join deadline.
//
// A process counts as rank R of this job if it is in state T, belongs to the same user and runs the same executable file as
// this one, and its environment makes it rank R of a job with this one's size, address, port and job id.
#pragma once

#include <vector>

#include "comm/world.h"

namespace trivet::comm {

struct StoppedRank {
  int rank = 0;
  int64_t pid = 0;
};

std::vector<StoppedRank> find_stopped_ranks(const Place& job);

}  // namespace trivet::comm
