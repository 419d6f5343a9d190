// Finds what each rank computes on: it is part of the key of a result, and decides how much memory a trial may take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/world.h"
#include "engine/config/config.h"

namespace trivet::autotune {

struct RankDevices {
  std::string hardware;  // for all ranks: "4 x AMD EPYC ..., 2 threads"
  bool gpus = false;
  // The memory that a trial may take on every rank: the least that is free on any of them, less the reserve
  // (autotune/cluster.h, Note: memory in reserve). Host memory is divided among the host's CPU ranks.
  int64_t memory_bytes = 0;
};

// The device that one rank finds.
struct RankDevice {
  std::string host, hardware;
  int64_t free_bytes = 0;
  bool shared = false;  // by the ranks of the host
};
// Returns the devices common to all ranks.
RankDevices combine(const std::vector<RankDevice>& ranks);

// All ranks call it together. Throws what the backend of the config's device throws if that device is missing.
RankDevices find_rank_devices(const Config& config, comm::World& world, int threads, int local_rank);

}  // namespace trivet::autotune
