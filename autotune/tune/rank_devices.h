// Finds what each rank computes on: it is part of the key of a result, and decides how much memory a trial may take.
#pragma once

#include <cstdint>
#include <string>

#include "comm/world.h"
#include "engine/config/config.h"

namespace trivet::autotune {

struct RankDevices {
  std::string hardware;  // for all ranks: "4 x AMD EPYC ..., 2 threads"
  bool gpus = false;
  int64_t memory_bytes = 0;  // available to every rank: the least of all; host memory is divided among the host's CPU ranks
};

// All ranks call it together. Throws what the backend of the config's device throws if that device is missing.
RankDevices find_rank_devices(const Config& config, comm::World& world, int threads, int local_rank);

}  // namespace trivet::autotune
