#include "autotune/tune/rank_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "autotune/cluster.h"
#include "autotune/host_facts.h"
#include "comm/participants.h"
#include "core/host_memory.h"
#include "core/memory.h"
#include "engine/backend/backend.h"
#include "engine/backend/cuda_module.h"

namespace trivet::autotune {
namespace {

RankDevice find_own(const Config& config, comm::World& world, int threads, int local_rank) {
  std::string reason;
  const Device device = config.device == DeviceChoice::Auto ? find_device(reason) : config.compute_device();
  if (device == Device::Cpu)
    return {world.host(), fmt::format("{}, {} threads", processor_name(), threads), available_host_memory(), true};
  MemoryMeter meter;
  const auto backend =
      make_backend(device, {.world = world.group(), .meter = meter, .threads = threads, .local_rank = local_rank});
  return {world.host(), backend->description(), backend->free_bytes(), false};
}

}  // namespace

RankDevices combine(const std::vector<RankDevice>& ranks) {
  std::map<std::string, int> ranks_of_host, ranks_of_hardware;
  for (const RankDevice& rank : ranks) ++ranks_of_host[rank.host], ++ranks_of_hardware[rank.hardware];
  RankDevices devices{.memory_bytes = std::numeric_limits<int64_t>::max()};
  for (const RankDevice& rank : ranks) {
    devices.memory_bytes = std::min(devices.memory_bytes, rank.free_bytes / (rank.shared ? ranks_of_host[rank.host] : 1));
    devices.gpus = !rank.shared;
  }
  devices.memory_bytes -= default_reserve(devices.memory_bytes);
  for (const auto& [hardware, count] : ranks_of_hardware)
    devices.hardware += fmt::format("{}{} x {}", devices.hardware.empty() ? "" : "; ", count, hardware);
  return devices;
}

RankDevices find_rank_devices(const Config& config, comm::World& world, int threads, int local_rank) {
  const RankDevice own = find_own(config, world, threads, local_rank);
  const nlohmann::json mine{own.host, own.hardware, own.free_bytes, own.shared};
  std::vector<RankDevice> ranks;
  for (const std::string& text : comm::over_group(world.group()).gather(mine.dump())) {
    const auto rank = nlohmann::json::parse(text);
    ranks.push_back({.host = rank[0], .hardware = rank[1], .free_bytes = rank[2], .shared = rank[3]});
  }
  return combine(ranks);
}

}  // namespace trivet::autotune
