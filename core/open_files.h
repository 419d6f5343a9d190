// The limit of open files is the system's fault, not that of the file that happened to be opened next.
#pragma once

#include <string>

namespace trivet {

// Throws Error (OutOfMemory, exit code 19) if `error`, of a call that opens `path`, says that this process or the machine can
// have no more open files. Keeps errno.
void check_open_files(const std::string& path, int error);

}  // namespace trivet
