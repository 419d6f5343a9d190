// --copy_program: brings this executable, and the modules that are next to it, to hosts that lack it or have another build.
#pragma once

#include <string>
#include <vector>

#include "cli/launch/guardian.h"
#include "cli/launch/rank_layout.h"

namespace trivet::cli {

// Returns the shell's name for the copy on the other host: a path in ~/.cache/trivet, in a folder of this build.
std::string copied_program();

// Copies to all hosts but this one at the same time; what is already there is left. Throws Error (Rendezvous) with what the
// host said if it cannot be done, and Error if a signal or the launcher's end interrupts it.
void copy_program(const LaunchRequest& request, const std::vector<HostRanks>& hosts, const comm::Environment& inherited,
                  const GuardianEnds& ends);

}  // namespace trivet::cli
