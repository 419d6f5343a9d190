#include "cli/launch/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "cli/launch/guardian.h"
#include "cli/launch/output.h"
#include "cli/launch/pid_file.h"
#include "cli/launch/rank_log.h"
#include "cli/launch/rank_starter.h"
#include "cli/launch/supervisor.h"
#include "core/named_files.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

namespace fs = std::filesystem;

// Removes the shared memory of ranks that were killed while they were creating it.
class Leftovers {
 public:
  explicit Leftovers(const std::string& job_id) : prefix_(job_id.empty() ? "" : "trivet-" + job_id) {}
  ~Leftovers() {
    if (prefix_.empty()) return;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator("/dev/shm", ignored)) {
      if (entry.path().filename().string().starts_with(prefix_)) fs::remove(entry.path(), ignored);
    }
  }

 private:
  std::string prefix_;
};

// Where the rank's output goes: into its log files, if the user asked for them, else through the relay.
Relay::Streams streams_of(const LaunchRequest& request, int rank, Relay& relay) {
  if (request.log_folder.empty()) return relay.streams_of(rank);
  const bool is_restart = request.restart > 0;
  return {open_rank_log(request.log_folder, rank, "out", is_restart),
          open_rank_log(request.log_folder, rank, "err", is_restart)};
}

std::vector<NamedFile> files_of(const comm::Environment& environment, const char* variable) {
  const auto list = environment.find(variable);
  return list == environment.end() ? std::vector<NamedFile>() : named_files(list->second);
}

// Checks the logs of all ranks before the first is replaced, and tells the ranks about them.
comm::Environment with_rank_logs(const JobOnThisHost& job) {
  comm::Environment environment = job.inherited;
  if (job.request.log_folder.empty()) return environment;
  std::vector<int> ranks;
  for (const RankLayout& rank : job.ranks) ranks.push_back(rank.rank);
  check_rank_logs(job.request.log_folder, ranks, files_of(environment, kLauncherInputs), job.request.program);
  std::vector<NamedFile> written = files_of(environment, kLauncherOutputs);
  for (const std::string& path : paths_of_rank_logs(job.request.log_folder, ranks))
    written.push_back({"--enable_each_rank_log", path});
  environment[kLauncherOutputs] = list_of_named_files(written);
  return environment;
}

// Prints a line and returns false if the pid cannot be written.
bool add(const PidFile& pids, int rank, int pid, Relay& relay) {
  const std::string error = pids.add(rank, pid);
  if (error.empty()) return true;
  relay.say(fmt::format("--save_pid: {}: {}; the pids of ranks from {} on are missing from it, and the job continues",
                        printable(pids.path(), 400), error, rank));
  return false;
}

}  // namespace

JobOutcome run_ranks(const JobOnThisHost& job, LauncherSide& side) {
  const LaunchRequest& request = job.request;
  ignore_signals_of_outputs();
  const comm::Environment environment = with_rank_logs(job);
  std::unique_ptr<PidFile> pids;
  if (request.save_pid) {
    pids = std::make_unique<PidFile>(job.inherited);
    if (!request.quiet) print_error_in_time(fmt::format("{}: pids are in {}\n", job.speaker, printable(pids->path(), 400)));
  }
  const Leftovers leftovers(job.job_id);  // the guardian has its own: either of the two may be killed
  return run_guarded(
      [&](const GuardianEnds& ends) {
        const Leftovers of_guardian(job.job_id);
        auto meeting = std::make_unique<Meeting>(job.meet());
        // A user may stop a job of this host alone for as long as they like. A launcher of several hosts replaces a stopped
        // one.
        const bool started_by_agent = job.launcher_silence.count() > 0;
        auto starter = std::make_unique<RankStarter>(request, environment, *meeting, ends.for_ranks,
                                                     /*end_without_guardian=*/started_by_agent);
        Supervisor supervisor({.speaker = job.speaker,
                               .announces = job.announces,
                               .quiet = request.quiet,
                               .shutdown_timeout = std::chrono::seconds(request.shutdown_timeout_s),
                               .launcher_silence = job.launcher_silence},
                              ends);
        bool pids_complete = true;
        for (const RankLayout& rank : job.ranks) {
          const int pid = starter->start(rank, streams_of(request, rank.rank, supervisor.relay()));
          supervisor.watch(rank.rank, pid);
          if (pids && pids_complete) pids_complete = add(*pids, rank.rank, pid, supervisor.relay());
        }
        starter.reset();
        meeting.reset();
        const JobOutcome outcome = supervisor.run();
        if (const std::string lost = lines_that_may_be_lost(request.log_folder); !lost.empty())
          print_error_in_time(fmt::format("{}: {}\n", job.speaker, lost));
        if (pids) pids->remove();
        return outcome;
      },
      side);
}

JobOutcome run_ranks(const JobOnThisHost& job) {
  LauncherSide side;
  return run_ranks(job, side);
}

}  // namespace trivet::cli
