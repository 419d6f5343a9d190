// Runs a job in a process of its own, the guardian, so that no rank survives, however the launcher ends.
//
//   trivet launch  --signals-->  guardian  --starts, watches-->  ranks  --start-->  anything, in any session
//        \--waits for the outcome--/
//
// Both are subreapers (PR_SET_CHILD_SUBREAPER), so nothing that the ranks start can leave the tree. If the launcher is killed,
// the guardian sees the end of their socket and kills everything; if the guardian is killed, its processes become the
// launcher's, which kills them. If both are killed, nobody holds the launcher's side of the link any more, and each rank of
// Trivet ends itself (comm/launcher_link.h). The guardian has a different name from the launcher, so that `pkill -f "trivet
// launch"` does not end both.
#pragma once

#include <functional>

#include "cli/launch/job_outcome.h"

namespace trivet::cli {

// The guardian's descriptors.
struct GuardianEnds {
  int orders;     // the launcher's signals, one `int` each; closed when the launcher ends
  int reports;    // what ranks report over the link
  int for_ranks;  // the ranks' side of the link
};

// Blocks the signals that it passes on while the job runs. An error that `job` throws becomes an outcome with its exit code and
// text.
JobOutcome run_guarded(const std::function<JobOutcome(const GuardianEnds&)>& job);

}  // namespace trivet::cli
