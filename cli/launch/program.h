// A program started as a rank: no shell anywhere, arguments and environment arrive byte for byte.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "cli/launch/layout.h"

namespace trivet::cli {

// The file that a name means: itself when it has a slash, else the first executable one in PATH; "trivet" is this very program,
// so that launcher and ranks cannot differ. Throws ConfigError.
std::string find_program(const std::string& name, const std::string& path_variable);

struct Start {
  std::string file;
  std::vector<std::string> arguments;
  comm::Environment environment;  // all of it
  std::vector<int> cores = {};
  int output = -1, error = -1;      // become stdout and stderr; -1: the launcher's own
  std::vector<int> inherited = {};  // descriptors that the rank keeps under their numbers
};

// In a process group of its own, so that what it starts ends with it; killed when the launcher dies, however it dies.
// Throws ConfigError when the file cannot be executed.
pid_t start(const Start& how);

}  // namespace trivet::cli
