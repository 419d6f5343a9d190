// Memory that this host can still give to its processes.
#pragma once

#include <cstdint>
#include <string>

namespace trivet {

// Bytes: what the system says is available, or what the limit of a container (cgroup v2) leaves if that is less. Files in the
// page cache count as available. `root` is put before /proc and /sys, for tests. The largest number if the system says nothing.
int64_t available_host_memory(const std::string& root = "");

}  // namespace trivet
