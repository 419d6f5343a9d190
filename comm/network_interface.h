// The network interface through which this host reaches the other hosts of a job.
#pragma once

#include <string>
#include <vector>

namespace trivet::comm {

struct NetworkInterface {
  std::string name;     // "eth0"
  std::string address;  // "10.0.0.7" or "fd00::7"
  bool ipv6 = false;
};

// All addresses of this host's interfaces that are up.
std::vector<NetworkInterface> network_interfaces();

// `chosen` is the name of an interface ("ib0"), a network in which this host has an address ("10.1.0.0/16", "fd00::/64"), or
// empty: then it is the interface that has the address from which the system sends to `master_address` (rank 0's host; a name
// or an address), which is also right on rank 0's host. Throws ConfigError, which lists this host's interfaces, if there is
// none.
NetworkInterface choose_network_interface(const std::string& chosen, const std::string& master_address);

// Names of this host's devices for remote direct memory access (InfiniBand, RoCE): "mlx5_0".
std::vector<std::string> rdma_devices(const std::string& folder = "/sys/class/infiniband");

}  // namespace trivet::comm
