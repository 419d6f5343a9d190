// Memory that this host can still give to its processes.
#pragma once

#include <cstdint>
#include <string>

namespace trivet {

// Bytes: what the system says is available, or what the limits of this process's control group, and of those above it, leave if
// that is less (version 2 and version 1, as a container, Slurm or systemd sets them). Files in the page cache count as
// available. `root` is put before /proc and /sys, for tests. The largest number if the system says nothing.
int64_t available_host_memory(const std::string& root = "");

// Bytes: the most memory that this program has held at once; -1 if the system does not say. Unlike getrusage's figure, it does
// not count what the process held before it became this program.
int64_t peak_resident_memory(const std::string& root = "");

}  // namespace trivet
