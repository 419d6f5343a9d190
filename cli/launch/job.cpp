#include "cli/launch/job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "cli/launch/guardian.h"
#include "cli/launch/output.h"
#include "cli/launch/pid_file.h"
#include "cli/launch/program.h"
#include "cli/launch/shortage.h"
#include "cli/launch/supervisor.h"
#include "comm/secret.h"
#include "comm/socket.h"
#include "core/error.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

namespace fs = std::filesystem;

// The secret is in memory only; every rank inherits its descriptor and reads it from the beginning.
comm::Descriptor make_secret() {
  comm::Descriptor secret(::memfd_create("trivet-secret", MFD_CLOEXEC));
  if (!secret) throw shortage("cannot make a secret for the job", errno);
  const std::string bytes = comm::random_bytes(32);
  if (::write(secret.number(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    throw shortage("cannot make a secret for the job", errno);
  return secret;
}

comm::Descriptor open_log(const std::string& folder, int rank, const char* what) {
  const std::string path = fmt::format("{}/rank_{}.{}", folder, rank, what);
  std::error_code error;
  fs::create_directories(folder, error);
  comm::Descriptor file(error ? -1 : ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
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

class Starter {
 public:
  Starter(const LaunchRequest& request, const comm::Environment& inherited, std::string job_id)
      : request_(request),
        inherited_(inherited),
        job_id_(std::move(job_id)),
        file_(find_program(request.program[0], path_of(inherited))),
        listener_(comm::listen_on(request.master_address, request.master_port)),
        secret_(make_secret()) {}

  int start_rank(const RankLayout& rank, bool several, Relay& relay, int link) const {
    Start how{.file = file_, .arguments = request_.program, .environment = inherited_, .cores = rank.cores};
    how.inherited = {secret_.number(), link};
    for (const auto& [name, value] : rank.environment) how.environment[name] = value;
    how.environment["MASTER_PORT"] = std::to_string(comm::port_of(listener_));
    how.environment["TRIVET_JOB_ID"] = job_id_;
    how.environment["TRIVET_EPOCH"] = std::to_string(0);
    how.environment["TRIVET_SECRET_FD"] = std::to_string(secret_.number());
    how.environment["TRIVET_LAUNCHER_FD"] = std::to_string(link);
    how.environment.erase("TRIVET_LISTEN_FD");
    if (rank.rank == 0) {
      how.inherited.push_back(listener_.number());
      how.environment["TRIVET_LISTEN_FD"] = std::to_string(listener_.number());
    }
    Relay::Streams streams;
    if (request_.log_folder.empty()) {
      streams = relay.streams_of(rank.rank, several);
    } else {
      streams = {open_log(request_.log_folder, rank.rank, "out"), open_log(request_.log_folder, rank.rank, "err")};
    }
    how.output = streams.output.number();
    how.error = streams.error.number();
    return start(how);
  }

 private:
  static std::string path_of(const comm::Environment& environment) {
    const auto path = environment.find("PATH");
    return path == environment.end() ? "/usr/local/bin:/usr/bin:/bin" : path->second;
  }

  const LaunchRequest& request_;
  const comm::Environment& inherited_;
  std::string job_id_, file_;
  comm::Descriptor listener_, secret_;
};

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

Verdict run_ranks(const LaunchRequest& request, const std::vector<RankLayout>& ranks, const comm::Environment& inherited) {
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
    auto starter = std::make_unique<Starter>(request, inherited, job_id);
    Supervisor supervisor({request.quiet, std::chrono::seconds(request.shutdown_timeout_s)}, ends);
    bool pids_complete = true;
    for (const RankLayout& rank : ranks) {
      const int pid = starter->start_rank(rank, ranks.size() > 1, supervisor.relay(), ends.for_ranks);
      supervisor.watch(rank.rank, pid);
      if (pids && pids_complete) pids_complete = add(*pids, rank.rank, pid, supervisor.relay());
    }
    starter.reset();  // now only rank 0 holds the port, so nobody waits for it after it has died
    const Verdict verdict = supervisor.run();
    if (pids) pids->remove();
    return verdict;
  });
}

}  // namespace trivet::cli
