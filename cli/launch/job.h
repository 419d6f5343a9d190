// Runs the ranks of one host, from their start to the exit code of the job.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "cli/launch/guardian.h"
#include "cli/launch/job_outcome.h"
#include "cli/launch/meeting.h"
#include "cli/launch/rank_layout.h"

namespace trivet::cli {

// The references must stay valid while the job runs.
struct JobOnThisHost {
  const LaunchRequest& request;
  const std::vector<RankLayout>& ranks;
  const comm::Environment& inherited;     // the environment of the ranks, without what their layout adds
  std::string job_id;                     // its shared memory is removed at the end; empty: it is not known
  std::function<Meeting()> meet;          // called once, by the guardian
  std::string speaker = "trivet launch";  // comes first in messages
  bool announces = false;  // every end of a rank, and every loss that a rank reports, arrives at LauncherSide::hear
  std::chrono::seconds launcher_silence{0};  // as in SupervisorOptions
};

JobOutcome run_ranks(const JobOnThisHost& job, LauncherSide& side);
// The launcher does nothing but wait.
JobOutcome run_ranks(const JobOnThisHost& job);

}  // namespace trivet::cli
