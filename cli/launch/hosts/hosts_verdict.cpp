#include "cli/launch/hosts/hosts_verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>

#include "core/error.h"

namespace trivet::cli {
namespace {

// Returns hosts whose ranks reported that they could not write their files of a checkpoint, if others could.
std::vector<std::string> hosts_without_room(const JobRecord& record, const std::vector<HostRanks>& hosts) {
  std::vector<std::string> full;
  for (const HostRanks& on : hosts)
    if (std::any_of(record.losses.begin(), record.losses.end(), [&](const comm::Loss& loss) {
          return loss.code == ExitCode::CheckpointNotWritten && loss.rank >= on.first_rank && loss.rank <= on.last_rank();
        }))
      full.push_back(on.host.name);
  return full.size() < hosts.size() ? full : std::vector<std::string>{};
}

}  // namespace

JobOutcome verdict_of(const JobRecord& record, const HostsEnd& end) {
  JobOutcome outcome = outcome_of(record);
  if (const auto full = hosts_without_room(record, end.hosts); !full.empty() && record.hosts.empty()) {
    outcome.lost_hosts = full;
    outcome.text += fmt::format("; host{} {} could not write a checkpoint", full.size() == 1 ? "" : "s", fmt::join(full, ", "));
  }
  // A rank that failed by itself in the meantime is what is reported.
  const RankEnd* cause = root_cause(record.ends);
  const bool ended_for_it = cause == nullptr || cause->by_us || cause->exit_code == 128 + SIGTERM;
  if (end.returned && ended_for_it && record.signal == 0 && outcome.exit_code != 0) {
    outcome.returned_hosts = {*end.returned};
    if (record.hosts.empty())
      outcome.text = fmt::format("launch: host {} answers again; the ranks have ended for it", *end.returned);
    return outcome;
  }
  // Without it, the others would not have failed, or only as a consequence.
  const bool is_consequence = cause == nullptr || cause->by_us || cause->exit_code == static_cast<int>(ExitCode::PeerLost) ||
                              cause->exit_code == static_cast<int>(ExitCode::Rendezvous);
  if (!end.unexplained || !is_consequence || record.signal != 0) return outcome;
  JobOutcome unexplained = *end.unexplained;
  unexplained.lost_hosts = outcome.lost_hosts;
  return unexplained;
}

}  // namespace trivet::cli
