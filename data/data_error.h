// Errors about data files. Every message begins with the name of the file.
#pragma once

#include <string>

#include "core/error.h"

namespace trivet::data {

// "input.txt: MESSAGE", exit code 2: the file is missing or is not what it should be.
[[noreturn]] inline void bad_file(const std::string& path, const std::string& message) {
  throw DataError(ExitCode::Usage, path + ": " + message);
}
// The same for a file that is not there. Megatron's programs name its two files by what their names have in common.
[[noreturn]] void refuse_missing(const std::string& path);
// Exit code 18: the file has changed, or its content does not match its own checksum.
[[noreturn]] inline void data_changed(const std::string& path, const std::string& message) {
  throw DataError(ExitCode::DataChanged, path + ": " + message);
}

}  // namespace trivet::data
