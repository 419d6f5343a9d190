// Runs a job on several hosts: starts an agent on each, checks the hosts, lets the ranks start, and passes on what they print
// until all have ended.
//
//   agents started --> tasks sent, reports back --> rank 0's host listens --> the others reach it --> ranks run
//                            \ a problem: a table of all hosts, and nothing starts
//
// It runs in a guardian (guardian.h), so that Ctrl-Z at the launcher stops nothing. When a rank fails, the agents of all hosts
// are told, and each ends its ranks as on one host (supervisor.h).
#pragma once

#include "cli/launch/job_outcome.h"
#include "cli/launch/rank_layout.h"

namespace trivet::cli {

JobOutcome run_on_hosts(const LaunchRequest& request, const std::vector<HostRanks>& hosts, const comm::Environment& inherited);

// The command line that runs the agent of a host, as --dry-run shows it.
std::vector<std::string> agent_command(const LaunchRequest& request, const Host& host);

}  // namespace trivet::cli
