// Errors for resources that the system refuses: processes, threads, descriptors, memory. Such a shortage is neither a defect
// nor a wrong flag; its exit code is 19.
#pragma once

#include <string>

#include "core/error.h"

namespace trivet::cli {

// True if this errno means a shortage.
bool is_shortage(int number);
// "cannot start rank 3: Resource temporarily unavailable; raise the limit of processes (ulimit -u ...)". `number` is an errno.
Error shortage(const std::string& what, int number);

}  // namespace trivet::cli
