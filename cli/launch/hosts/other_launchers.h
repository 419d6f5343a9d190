// --launcher pdsh, openmpi, mpich, slurm: the command line of a program that starts the ranks on all hosts, or this launcher on
// each. The ranks find their places from the variables that it sets (docs/environment.md).
#pragma once

#include <string>
#include <vector>

#include "cli/launch/rank_layout.h"

namespace trivet::cli {

enum class OtherLauncher { Pdsh, OpenMpi, Mpich, Slurm };

struct OtherCommand {
  std::vector<std::string> words;
  comm::Environment environment = {};  // added to the launcher's own
};

// Without a hostfile Slurm takes the nodes of its allocation. Throws ConfigError for what the launcher cannot do: other numbers
// of ranks from host to host (Slurm), or chosen slots (all but pdsh).
OtherCommand other_command(OtherLauncher launcher, const LaunchRequest& request, const std::vector<HostRanks>& hosts,
                           const comm::Environment& inherited);

}  // namespace trivet::cli
