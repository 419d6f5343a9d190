// trivet launch --max_restarts: a job that has failed starts again, from its newest checkpoint, on the hosts that are left, and
// takes lost hosts in again when they answer.
#pragma once

#include <array>
#include <chrono>
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
  LaunchRequest request;            // for this start: its number, the awaited hosts, and the program, which resumes
  std::vector<Host> candidates;     // hosts that the job may use, as the hostfile was when it began
  std::vector<std::string> absent;  // candidates that were lost and have not come back
  std::vector<HostRanks> hosts;
  int most_ranks = 0;                 // ranks of the first start; the batch was chosen for them
  std::vector<std::string> taken_in;  // by this start: hosts that had come back
  std::vector<std::string> given_up;  // hosts that had come back, but with which no start succeeded
  std::string address_of_first;       // --master_addr, which is that of the first start's first host
  std::string first_host;
  int failures = 0;        // the restarts that --max_restarts counts
  bool owns_steps = true;  // the steps in checkpoint.directory are this job's
};

// Either a start, or the reason why there is none.
struct NextStart {
  std::optional<JobStart> start = {};
  std::string why_not = {};
};

// Throws ConfigError if the job never has so many hosts.
void check_min_nodes(const LaunchRequest& request, int hosts);

// Steps that are in checkpoint.directory before the first start are of another run, unless the program resumes from them.
JobStart first_start(const LaunchRequest& request, const std::vector<Host>& candidates,
                     const std::vector<std::string>& absent = {});

// The next start after one that did not succeed. There is none if the job was ended by a signal to the launcher, if the failure
// would only happen again (a wrong config, data that changed), if all --max_restarts are used up, or if fewer than --min_nodes
// hosts are left. `trivet train` starts as many ranks as the config's batch and grid allow; the batch stays the same.
NextStart start_again(const JobStart& before, const JobOutcome& outcome);

// The number of failures in a row that came within a minute of their start, after one more start that ran for `ran`. Without
// those with which hosts were lost, for the job goes on without these hosts, and those for which it was ended (returned hosts).
int quick_failures_after(int before, const JobOutcome& outcome, std::chrono::steady_clock::duration ran);
// A job that fails soon after each start does not keep its hosts busy with starts: 0, 0, 1, 2, 4, ... seconds, at most 30.
std::chrono::seconds pause_before_start(int quick_failures);

// Describes what follows `outcome`: "restart 1 of 3, on 2 hosts with 6 ranks"; "it starts again on 3 hosts with 8
// ranks" if a host has come back, which --max_restarts does not count.
std::string describe(const JobStart& start, const JobOutcome& outcome);

}  // namespace trivet::cli
