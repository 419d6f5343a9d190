// Ranks that are threads of one process, whatever their worlds run over.
#pragma once

#include <functional>
#include <memory>

#include "comm/group_errors.h"
#include "comm/world.h"

namespace trivet::comm {

// Makes the world of one rank, on the thread of that rank. `self` is the rank in the group of all ranks.
using RankWorldMaker = std::function<std::unique_ptr<World>(RankInGroup self, JobView job)>;

// run_threads() of world.h, with worlds of any kind.
void run_rank_threads(int ranks, const RankWorldMaker& make, const std::function<void(World&)>& body,
                      const WorldOptions& options);

}  // namespace trivet::comm
