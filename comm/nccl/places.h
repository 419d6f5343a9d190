// Finds out where the ranks of a job run: on which GPU of which host, and with which NCCL. Trivet checks this before the first
// use of NCCL, because NCCL's own errors name neither ranks nor GPUs.
#pragma once

#include <string>
#include <vector>

#include "comm/process_group.h"

namespace trivet::comm {

struct GpuPlace {
  std::string host, boot_id;  // boot_id tells hosts of the same name apart
  std::string bus_id;         // "0000:65:00.0"
  int64_t pid = 0;
  int nccl_version = 0;
};

// The place of this process and its current device.
GpuPlace this_gpu_place();
// The places of all ranks, in rank order. Collective over `host`.
std::vector<GpuPlace> gather_places(ProcessGroup& host, const GpuPlace& mine);

// Throws CommError VersionSkew if NCCL is older than the version this was built with or not the same on all ranks, and
// ConfigError if two ranks are on one GPU. With `share_gpu`, ranks in separate processes may share a GPU.
void check_places(const std::vector<GpuPlace>& places, bool share_gpu);

// Checks whether TRIVET_SHARE_GPU=1 allows several ranks on one GPU, for tests.
bool shares_gpu();
// Checks whether two ranks are on one GPU.
bool any_shares_a_gpu(const std::vector<GpuPlace>& places);
// Prepares NCCL for a shared GPU; must come before the first call of NCCL. Sets variables in this process's environment, so
// that every rank counts as a separate host and ranks communicate over loopback sockets. Variables that are already set stay.
void prepare_shared_gpu(int world_rank);

}  // namespace trivet::comm
