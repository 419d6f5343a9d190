// Chooses the network that NCCL takes between hosts.
//
// NCCL has no call that tells, so this is what its documentation leads to expect: a plugin, if one is named; otherwise
// InfiniBand verbs, which RoCE has too, if there is a device for them and nothing forbids it; otherwise TCP sockets.
// /etc/nccl.conf is not read; NCCL_DEBUG=INFO shows what NCCL has really taken.
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"

namespace trivet::comm {

// The devices and libraries for RDMA on this host.
struct RdmaSurroundings {
  std::string devices = "/sys/class/infiniband";  // a folder for each device, as Linux has it
  bool verbs_library = true;                      // whether libibverbs can be loaded, without which NCCL uses no device
};
RdmaSurroundings rdma_surroundings();

// "InfiniBand (mlx5_0), as NCCL's documentation leads to expect". If sockets are expected although there is a device for RDMA,
// the text is a warning that says why, and what to do.
std::string expected_nccl_network(const Environment& environment, const RdmaSurroundings& surroundings);

// Files that NCCL looks for by itself, and whose lines set its variables, which name plugins that it loads.
std::vector<std::string> nccl_files(const std::string& home_directory);
// Throws ConfigError if somebody else than this user and root can change one of them (core/found_file.h).
void check_nccl_files(const std::vector<std::string>& files);
// Does the same for the user's home directory, where NCCL looks.
void check_nccl_files();

}  // namespace trivet::comm
