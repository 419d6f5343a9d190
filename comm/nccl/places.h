// Where the ranks of a job are: which GPU of which host, and with which NCCL. Compared before NCCL is asked for anything,
// because its own words name neither ranks nor GPUs.
#pragma once

#include <string>
#include <vector>

#include "comm/process_group.h"

namespace trivet::comm {

struct GpuPlace {
  std::string host, boot_id;  // the second tells hosts of one name apart
  std::string bus_id;         // "0000:65:00.0"
  int64_t pid = 0;
  int nccl_version = 0;
};

// Of this process and its current device.
GpuPlace this_gpu_place();
// Of all ranks, in their order. Collective; uses the host's group.
std::vector<GpuPlace> gather_places(ProcessGroup& host, const GpuPlace& mine);

// Throws CommError VersionSkew when NCCL is older than what this was built with or not the same on all ranks, ConfigError when
// two ranks are on one GPU. `share_gpu`: they may, as processes.
void check_places(const std::vector<GpuPlace>& places, bool share_gpu);

// TRIVET_SHARE_GPU=1: several ranks on one GPU, for tests.
bool shares_gpu();
// Whether two ranks are on one GPU.
bool any_shares_a_gpu(const std::vector<GpuPlace>& places);
// What NCCL needs for that, in this process's environment, before the first call of NCCL: every rank counts as a host of its
// own, and they talk over loopback sockets. What is set already stays.
void prepare_shared_gpu(int world_rank);

}  // namespace trivet::comm
