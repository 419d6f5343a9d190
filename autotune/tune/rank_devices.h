// What each rank computes on: for the key of a result, and for how much memory a trial may take.
#pragma once

#include <cstdint>
#include <string>

#include "comm/world.h"
#include "engine/config/config.h"

namespace trivet::autotune {

struct RankDevices {
  std::string hardware;  // of all ranks: "4 x AMD EPYC ..., 2 threads"
  bool gpus = false;
  int64_t memory_bytes = 0;  // that every rank may take: the least of all; a CPU's is shared out among the ranks of its host
};

// All ranks together. Throws what the backend of the config's device throws where that is missing.
RankDevices find_rank_devices(const Config& config, comm::World& world, int threads, int local_rank);

}  // namespace trivet::autotune
