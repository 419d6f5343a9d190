// Runs a job on this host, from its port and secret to the exit code: what `trivet launch` does after it has read its flags.
#pragma once

#include <vector>

#include "cli/launch/job_outcome.h"
#include "cli/launch/local_starter.h"
#include "cli/launch/rank_layout.h"

namespace trivet::cli {

JobOutcome run_ranks(const LaunchRequest& request, const std::vector<RankLayout>& ranks, const comm::Environment& inherited,
                     const MakeRankStarter& make_starter = make_local_starter);

}  // namespace trivet::cli
