// Writes a result file as a whole or not at all: an older file of that name stays until the new one is complete.
#pragma once

#include <string>
#include <string_view>

#include "core/file_system.h"

namespace trivet {

// Writes `path`.tmp, or `path`.PID.tmp if somebody has a file of that name, then renames it to `path`. Follows no link. Leaves
// no temporary file. Throws FileError, also if `path` is a directory.
void replace_file(FileSystem& files, const std::string& path, std::string_view text);

}  // namespace trivet
