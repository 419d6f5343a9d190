// What the system does not give: processes, threads, descriptors, memory. Not a defect, and not a wrong flag: exit code 19.
#pragma once

#include <string>

#include "core/error.h"

namespace trivet::cli {

// Is this errno one of a shortage?
bool is_shortage(int number);
// "cannot start rank 3: Resource temporarily unavailable; raise the limit of processes (ulimit -u ...)". `number` is an errno.
Error shortage(const std::string& what, int number);

}  // namespace trivet::cli
