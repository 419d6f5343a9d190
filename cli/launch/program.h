// Starts a program as a rank, without a shell: arguments and environment arrive byte for byte.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "cli/launch/rank_layout.h"

namespace trivet::cli {

// The file that a name means: the name itself if it contains a slash, else the first executable of that name in PATH. "trivet"
// means the running executable, so that launcher and ranks cannot differ. Throws ConfigError if there is no such file.
std::string find_program(const std::string& name, const std::string& path_variable);

// The variable PATH, or what a shell uses where there is none.
std::string path_of(const comm::Environment& environment);

struct Start {
  std::string file;
  std::vector<std::string> arguments;
  comm::Environment environment;  // the complete environment
  std::vector<int> cores = {};
  int input = -1;                   // becomes stdin; -1: /dev/null
  int output = -1, error = -1;      // become stdout and stderr; -1: the launcher's own
  std::vector<int> inherited = {};  // descriptors that the rank keeps under their numbers
};

// Starts it in a process group of its own, so that what it starts ends with it. The kernel kills it when the
// calling process dies, however it dies. Throws ConfigError if the file cannot be executed.
pid_t start(const Start& how);

}  // namespace trivet::cli
