#include "cli/launch/job_outcome.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "core/error.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

// Classifies ends that are failures. The smaller the value, the more likely it is the cause.
enum class Kind { ByItself, CouldNotJoin, LostAnother, ByUs };

Kind kind_of(const RankEnd& end) {
  if (end.by_us) return Kind::ByUs;
  if (end.exit_code == static_cast<int>(ExitCode::PeerLost)) return Kind::LostAnother;
  if (end.exit_code == static_cast<int>(ExitCode::Rendezvous)) return Kind::CouldNotJoin;
  return Kind::ByItself;
}

// Among ranks whose order is not known, one that was killed comes before one that exited, which may be a consequence.
bool comes_before(const RankEnd& one, const RankEnd& other) {
  if (kind_of(one) != kind_of(other)) return kind_of(one) < kind_of(other);
  if (one.look != other.look) return one.look < other.look;
  return one.signal != 0 && other.signal == 0;
}

const RankEnd* end_of(const std::vector<RankEnd>& ends, int rank) {
  const auto found = std::find_if(ends.begin(), ends.end(), [&](const RankEnd& end) { return end.rank == rank; });
  return found == ends.end() ? nullptr : &*found;
}

// The one rank that had to be ended after all the others had exited because a rank was lost. Null if there are several.
const RankEnd* the_one_that_stayed(const std::vector<RankEnd>& ends) {
  for (const bool only_stopped : {true, false}) {
    const auto stayed = [&](const RankEnd& end) { return end.by_us && (end.stopped || !only_stopped); };
    if (std::count_if(ends.begin(), ends.end(), stayed) == 1) return &*std::find_if(ends.begin(), ends.end(), stayed);
  }
  return nullptr;
}

std::string how_it_ended(const RankEnd& end) {
  if (end.stopped) return "it was stopped, as by SIGSTOP, and was ended by the launcher";
  if (end.by_us) return "it did not end by itself and was ended by the launcher";
  if (end.signal != 0) return fmt::format("it was killed by signal {}", name_of_signal(end.signal));
  return fmt::format("it ended with exit code {}", end.exit_code);
}

// "rank 3 (pid 4711)", "rank 3 (host b, pid 4711)"
std::string name_of(const RankEnd& end) {
  return fmt::format("rank {} ({}pid {})", end.rank, end.host.empty() ? "" : fmt::format("host {}, ", end.host), end.pid);
}

JobOutcome lost(const RankEnd& end, const std::string& cause, int exit_code) {
  return {exit_code,
          fmt::format("launch: {} was lost{}{}: {}", name_of(end), cause.empty() ? "" : ", ", cause, how_it_ended(end))};
}

// "rank 3", "ranks 1,3"
std::string name_of_ranks(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ","));
}

// "launch: host b (ranks 2 to 3) was lost: its connection has ended; other ranks lost rank 2: silent"
JobOutcome host_lost(const JobRecord& job) {
  const HostLoss& host = job.hosts[0];
  const std::string ranks = host.first_rank == host.last_rank ? fmt::format("rank {}", host.first_rank)
                                                              : fmt::format("ranks {} to {}", host.first_rank, host.last_rank);
  std::string noticed;
  if (!job.losses.empty())
    noticed = fmt::format("; other ranks lost rank {}: {}", job.losses[0].rank, printable(job.losses[0].cause));
  const int code = job.signal != 0 ? 128 + job.signal : static_cast<int>(ExitCode::PeerLost);
  return {code, fmt::format("launch: host {} ({}) was lost: {}{}", host.host, ranks, host.cause, noticed)};
}

JobOutcome ended_by_signal(const JobRecord& job) {
  std::vector<int> killed;
  std::string others;
  for (const RankEnd& end : job.ends) {
    if (end.signal == SIGKILL) {
      killed.push_back(end.rank);
    } else if (end.exit_code != 0 && end.exit_code != 128 + job.signal) {
      others += "; " + describe(end);
    }
  }
  // Trainers that had to be killed may be children of shells that ended in time.
  const std::string who = killed.empty() ? "what the ranks had started" : name_of_ranks(killed);
  std::string what = fmt::format("all {} ranks ended in time", job.ends.size());
  const bool had_to_kill = job.had_to_kill || !killed.empty();
  if (had_to_kill && job.killed_by_second_signal)
    what = fmt::format("a second signal killed {}", who);
  else if (had_to_kill)
    what = fmt::format("{} had not ended {} s later and had to be killed; --shutdown-timeout gives more time", who,
                       job.patience_s);
  return {128 + job.signal, fmt::format("launch: ended by signal {}: {}{}", name_of_signal(job.signal), what, others)};
}

}  // namespace

const RankEnd* root_cause(const std::vector<RankEnd>& ends) {
  const RankEnd* cause = nullptr;
  for (const RankEnd& end : ends) {
    if (end.exit_code != 0 && (cause == nullptr || comes_before(end, *cause))) cause = &end;
  }
  return cause;
}

namespace {

JobOutcome cause_and_code(const JobRecord& job) {
  const RankEnd* cause = root_cause(job.ends);
  // Whatever ranks on other hosts do after a host is lost is a consequence, unless one of them failed earlier.
  if (!job.hosts.empty() && (cause == nullptr || kind_of(*cause) != Kind::ByItself || job.hosts[0].look < cause->look))
    return host_lost(job);
  if (job.signal != 0 && (cause == nullptr || cause->by_us)) return ended_by_signal(job);
  const auto& losses = job.losses;
  if (cause == nullptr) {
    const auto told = std::find_if(losses.begin(), losses.end(),
                                   [&](const comm::Loss& loss) { return end_of(job.ends, loss.rank) != nullptr; });
    if (told == losses.end()) return {};
    return lost(*end_of(job.ends, told->rank), printable(told->cause), static_cast<int>(told->code));
  }
  const auto named = std::find_if(losses.begin(), losses.end(), [&](const comm::Loss& loss) {
    return static_cast<int>(loss.code) == cause->exit_code && end_of(job.ends, loss.rank) != nullptr;
  });
  const bool consequence = kind_of(*cause) == Kind::LostAnother || kind_of(*cause) == Kind::CouldNotJoin;
  const bool no_progress = kind_of(*cause) == Kind::ByItself && cause->exit_code == static_cast<int>(ExitCode::NoProgress);
  if ((consequence || no_progress) && named != losses.end())
    return lost(*end_of(job.ends, named->rank), printable(named->cause), cause->exit_code);
  if (consequence) {
    if (const RankEnd* stayed = the_one_that_stayed(job.ends)) return lost(*stayed, "", cause->exit_code);
  }
  return {cause->exit_code, "launch: " + describe(*cause)};
}

}  // namespace

JobOutcome outcome_of(const JobRecord& job) {
  JobOutcome outcome = cause_and_code(job);
  outcome.ended_by_signal = job.signal != 0;
  for (const HostLoss& loss : job.hosts) outcome.lost_hosts.push_back(loss.host);
  return outcome;
}

std::string to_message(const RankEnd& end) {
  return fmt::format("end {} {} {} {} {} {}", end.rank, end.pid, end.exit_code, end.signal, int{end.by_us}, int{end.stopped});
}

std::optional<RankEnd> rank_end_from_message(const std::string& message) {
  std::istringstream words(message);
  std::string kind;
  RankEnd end;
  if (!(words >> kind >> end.rank >> end.pid >> end.exit_code >> end.signal >> end.by_us >> end.stopped) || kind != "end")
    return std::nullopt;
  return end;
}

std::string describe(const RankEnd& end) {
  if (end.signal == 0) return fmt::format("{} ended with exit code {}", name_of(end), end.exit_code);
  return fmt::format("{} was killed by signal {}", name_of(end), name_of_signal(end.signal));
}

std::string name_of_signal(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return fmt::format("{} (SIG{})", signal, name ? name : "?");
}

}  // namespace trivet::cli
