// Decides the outcome of a job on several hosts, and which hosts the next start leaves out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/launch/job_outcome.h"
#include "cli/launch/rank_layout.h"

namespace trivet::cli {

// Facts about the end of a job on hosts that the record of its ranks does not hold.
struct HostsEnd {
  std::optional<JobOutcome> unexplained;  // outcome of the first agent that failed although none of its ranks had
  std::optional<std::string> returned;    // the host for which the job was ended
  std::vector<HostRanks> hosts;
};

// The outcome lists the hosts that were lost, that came back, or whose ranks alone could not write a checkpoint.
JobOutcome verdict_of(const JobRecord& record, const HostsEnd& end);

}  // namespace trivet::cli
