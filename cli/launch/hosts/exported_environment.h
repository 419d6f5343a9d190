// The variables of the launcher's environment that ranks on other hosts get, too.
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"

namespace trivet::cli {

// Returns the variables whose names begin with NCCL, UCX, PYTHON, MLFLOW, MV2 (as in DeepSpeed), OMP_ or TRIVET_,
// without those that mean something on one host or in one process only; and the lines NAME=VALUE of the file
// .deepspeed_env (DS_ENV_FILE gives it another name) in the home directory and in this directory, of which the latter
// wins. Throws ConfigError that names the file and line, or says why the file is not used (core/found_file.h).
comm::Environment exported_environment(const comm::Environment& environment);
// Where these files are, if they are there.
std::vector<std::string> places_of_environment_files(const comm::Environment& environment);
// The variables of one such file: "A=1", "A = 1", "export A=1", A='as it is', A="1" # comment. Refuses what a shell would
// replace ($HOME), because no shell reads the file, and several variables after one `export`.
comm::Environment parse_environment_file(const std::string& text, const std::string& path);

}  // namespace trivet::cli
