#include "autotune/tune/rank_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "autotune/host_facts.h"
#include "comm/participants.h"
#include "core/memory.h"
#include "engine/backend/backend.h"
#include "engine/backend/cuda_module.h"

namespace trivet::autotune {
namespace {

int64_t number_in(const std::string& path, int64_t otherwise) {
  int64_t number = 0;
  return std::ifstream(path) >> number ? number : otherwise;
}

// Memory that is free on this host now; a container's limit counts.
int64_t free_host_bytes() {
  constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  int64_t kibibytes = 0;
  std::istringstream(line_of("/proc/meminfo", "MemAvailable")) >> kibibytes;
  const int64_t limit = number_in("/sys/fs/cgroup/memory.max", kNoLimit);  // "max": none
  const int64_t used = limit == kNoLimit ? 0 : number_in("/sys/fs/cgroup/memory.current", 0);
  return std::min(kibibytes * 1024, limit - used);
}

struct OneDevice {
  std::string host, hardware;
  int64_t free_bytes = 0;
  bool shared = false;  // by the ranks of the host
};

OneDevice find_own(const Config& config, comm::World& world, int threads, int local_rank) {
  std::string reason;
  const Device device = config.device == DeviceChoice::Auto ? find_device(reason) : config.compute_device();
  if (device == Device::Cpu)
    return {world.host(), fmt::format("{}, {} threads", processor_name(), threads), free_host_bytes(), true};
  MemoryMeter meter;
  const auto backend =
      make_backend(device, {.world = world.group(), .meter = meter, .threads = threads, .local_rank = local_rank});
  return {world.host(), backend->description(), backend->free_bytes(), false};
}

}  // namespace

RankDevices find_rank_devices(const Config& config, comm::World& world, int threads, int local_rank) {
  const OneDevice own = find_own(config, world, threads, local_rank);
  const nlohmann::json mine{own.host, own.hardware, own.free_bytes, own.shared};
  std::map<std::string, int> ranks_of_host, ranks_of_hardware;
  std::vector<nlohmann::json> all;
  for (const std::string& text : comm::over_group(world.group()).gather(mine.dump())) {
    all.push_back(nlohmann::json::parse(text));
    ++ranks_of_host[all.back()[0]];
    ++ranks_of_hardware[all.back()[1]];
  }
  RankDevices devices{.memory_bytes = std::numeric_limits<int64_t>::max()};
  for (const nlohmann::json& one : all) {
    const int64_t bytes = one[2], sharers = one[3].get<bool>() ? ranks_of_host[one[0]] : 1;
    devices.memory_bytes = std::min(devices.memory_bytes, bytes / sharers);
    devices.gpus = !one[3].get<bool>();
  }
  for (const auto& [hardware, ranks] : ranks_of_hardware)
    devices.hardware += fmt::format("{}{} x {}", devices.hardware.empty() ? "" : "; ", ranks, hardware);
  return devices;
}

}  // namespace trivet::autotune
