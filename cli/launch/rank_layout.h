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

struct RankLayout {
  int rank = 0, local_rank = 0, node_rank = 0;
  std::string host;
  int slot = 0;
  std::vector<int> cores = {};         // bound to these; empty: not bound
  comm::Environment environment = {};  // added to the launcher's own environment
};

// This host's slots, after hostfile, filters and --num_gpus. Throws ConfigError if these are invalid, or for hosts other than
// this one.
Host slots_on_this_host(const LaunchRequest& request);
std::vector<RankLayout> lay_out(const LaunchRequest& request, const Host& host, const std::vector<int>& cores,
                                const comm::Environment& inherited);

std::string layout_as_json(const std::vector<RankLayout>& ranks);
std::string layout_as_text(const std::vector<RankLayout>& ranks, const LaunchRequest& request);

}  // namespace trivet::cli
