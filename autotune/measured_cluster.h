// Turns what trivet doctor --hosts has measured into a cluster for trivet plan --cluster (cluster.h). A cluster's nodes and
// devices are all alike, so every figure is that of the slowest host, or of the slowest link: a job waits for it.
//
// A device is a slot: one rank on its share of a host's cores, memory and link.
#pragma once

#include <string>
#include <vector>

#include "autotune/doctor_hosts.h"

namespace trivet::autotune {

// The JSON of a cluster file. The hosts were examined with DoctorOptions::ranks = max(slots, 2). Leaves out what was not
// measured: the share of products is 1, because the rates are those of products; there is no price, and no host memory for
// offload. Throws ConfigError that names the host if a figure is missing because its measurement failed.
std::string cluster_of_hosts(const std::vector<HostExamined>& hosts, const NetworkMeasured& network, int slots,
                             const std::string& name);

}  // namespace trivet::autotune
