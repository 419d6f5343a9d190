// trivet launch --max_restarts: a job that has failed starts again, from its newest checkpoint, on the hosts that are left.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch/job_outcome.h"
#include "cli/launch/rank_layout.h"
#include "core/error.h"

namespace trivet::cli {

// Exit codes of failures that would only happen again.
inline constexpr std::array kWouldFailAgain{
    ExitCode::Usage,    ExitCode::RanksDisagree, ExitCode::CheckpointNotWritten, ExitCode::CheckpointCorrupt,
    ExitCode::Numerics, ExitCode::DataChanged,   ExitCode::VersionSkew};

struct JobStart {
  LaunchRequest request;  // of this start: its number, the lost hosts, and the program, which resumes
  std::vector<HostRanks> hosts;
  bool owns_steps = true;  // what is in checkpoint.directory is of this job
};

// Steps that are in checkpoint.directory before the first start are of another run, unless the program resumes from them.
JobStart first_start(const LaunchRequest& request, const std::vector<HostRanks>& hosts);

// The next start after one that ended with `outcome`. None if there is nothing to repeat: the job succeeded or was ended by a
// signal to the launcher, the failure would only happen again (a wrong config, data that changed), all --max_restarts are used
// up, or fewer than --min_nodes hosts are left. Of `trivet train`, as many ranks start as the config's batch and grid allow,
// and the batch stays the same.
std::optional<JobStart> start_again(const JobStart& before, const JobOutcome& outcome);

// "restart 1 of 3, on 2 hosts with 6 ranks"
std::string describe(const JobStart& start);

}  // namespace trivet::cli
