// Decides which ranks start where and with what environment. This is arithmetic only, so that --dry-run prints what a start
// does.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/launch/hostfile.h"
#include "cli/launch/request.h"
#include "comm/world.h"

namespace trivet::cli {

// The ranks of one host of a job: those from first_rank on, one per slot.
struct HostRanks {
  Host host;
  int node_rank = 0, nodes = 1;
  int first_rank = 0, world_size = 1;
  int last_rank() const { return first_rank + static_cast<int>(host.slots.size()) - 1; }
};

struct RankLayout {
  int rank = 0, local_rank = 0, node_rank = 0;
  std::string host;
  int slot = 0;
  std::vector<int> cores = {};         // bound to these; empty: not bound
  comm::Environment environment = {};  // added to the launcher's own environment
};

// The hosts that the job may use: those of the hostfile after --include and --exclude. Without a hostfile it is this host.
// Throws ConfigError if the flags contradict each other or the hostfile.
std::vector<Host> candidate_hosts(const LaunchRequest& request);
// The first `nodes` of them (-1: all), of each the first --num_gpus slots. Throws ConfigError if there are too few.
std::vector<HostRanks> choose_hosts(std::vector<Host> hosts, int nodes, const LaunchRequest& request);
// The hosts of a job's first start.
std::vector<HostRanks> hosts_of_job(const LaunchRequest& request);
// Numbers the ranks in the order of the hosts and their slots.
std::vector<HostRanks> deal_ranks(std::vector<Host> hosts);

// The ranks of one host, which share `cores`; none: they are not known here. `inherited` is the environment of that host.
std::vector<RankLayout> lay_out(const LaunchRequest& request, const HostRanks& on, const std::vector<int>& cores,
                                const comm::Environment& inherited);
// Does the same with the cores that this process may use, or those of --bind_core_list.
std::vector<RankLayout> lay_out_here(const LaunchRequest& request, const HostRanks& on, const comm::Environment& inherited);

std::string layout_as_json(const std::vector<RankLayout>& ranks);
std::string layout_as_text(const std::vector<RankLayout>& ranks, const LaunchRequest& request);

}  // namespace trivet::cli
