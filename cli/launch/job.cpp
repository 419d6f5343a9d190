#include "cli/launch/job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "cli/launch/guardian.h"
#include "cli/launch/output.h"
#include "cli/launch/pid_file.h"
#include "cli/launch/supervisor.h"
#include "comm/secret.h"
#include "core/error.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

namespace fs = std::filesystem;

Descriptor open_log(const std::string& folder, int rank, const char* what) {
  const std::string path = fmt::format("{}/rank_{}.{}", folder, rank, what);
  std::error_code error;
  fs::create_directories(folder, error);
  Descriptor file(error ? -1 : ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file)
    throw ConfigError(fmt::format("--enable_each_rank_log {}: {}: {}", printable(folder), printable(path, 400),
                                  error ? error.message() : std::strerror(errno)));
  return file;
}

// Removes the shared memory of ranks that were killed while they were creating it.
class Leftovers {
 public:
  explicit Leftovers(std::string job_id) : prefix_("trivet-" + std::move(job_id)) {}
  ~Leftovers() {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator("/dev/shm", ignored)) {
      if (entry.path().filename().string().starts_with(prefix_)) fs::remove(entry.path(), ignored);
    }
  }

 private:
  std::string prefix_;
};

// Where the rank's output goes: into its log files, if the user asked for them, else through the relay.
Relay::Streams streams_of(const LaunchRequest& request, int rank, bool several, Relay& relay) {
  if (request.log_folder.empty()) return relay.streams_of(rank, several);
  return {open_log(request.log_folder, rank, "out"), open_log(request.log_folder, rank, "err")};
}

// Prints a line and returns false if the pid cannot be written.
bool add(const PidFile& pids, int rank, int pid, Relay& relay) {
  const std::string error = pids.add(rank, pid);
  if (error.empty()) return true;
  relay.say(fmt::format(
      "trivet launch: --save_pid: {}: {}; the pids of ranks from {} on are missing from it, and the job continues\n",
      printable(pids.path(), 400), error, rank));
  return false;
}

}  // namespace

JobOutcome run_ranks(const LaunchRequest& request, const std::vector<RankLayout>& ranks, const comm::Environment& inherited,
                     const MakeRankStarter& make_starter) {
  ignore_signals_of_outputs();
  std::unique_ptr<PidFile> pids;
  if (request.save_pid) {
    pids = std::make_unique<PidFile>(inherited);
    Output error(STDERR_FILENO);
    error.add(fmt::format("trivet launch: pids are in {}\n", printable(pids->path(), 400)));
    error.flush_within(std::chrono::seconds(1));
  }
  const std::string job_id = comm::hexadecimal(comm::random_bytes(8));
  const Leftovers leftovers(job_id);  // the guardian has its own: either of the two may be killed
  return run_guarded([&](const GuardianEnds& ends) {
    const Leftovers of_guardian(job_id);
    auto starter = make_starter({request, inherited, job_id, ends.for_ranks});
    Supervisor supervisor({request.quiet, std::chrono::seconds(request.shutdown_timeout_s)}, ends);
    bool pids_complete = true;
    for (const RankLayout& rank : ranks) {
      const int pid = starter->start(rank, streams_of(request, rank.rank, ranks.size() > 1, supervisor.relay()));
      supervisor.watch(rank.rank, pid);
      if (pids && pids_complete) pids_complete = add(*pids, rank.rank, pid, supervisor.relay());
    }
    starter.reset();
    const JobOutcome outcome = supervisor.run();
    if (pids) pids->remove();
    return outcome;
  });
}

}  // namespace trivet::cli
