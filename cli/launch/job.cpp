#include "cli/launch/job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cli/launch/program.h"
#include "cli/launch/supervisor.h"
#include "comm/secret.h"
#include "comm/socket.h"
#include "core/error.h"

namespace trivet::cli {
namespace {

namespace fs = std::filesystem;

// In memory only; every rank inherits it and reads it from its beginning.
comm::Descriptor make_secret() {
  comm::Descriptor secret(::memfd_create("trivet-secret", MFD_CLOEXEC));
  if (!secret) throw ConfigError(fmt::format("cannot make a secret for the job: {}", std::strerror(errno)));
  write_all(secret.number(), comm::random_bytes(32));
  return secret;
}

comm::Descriptor open_log(const std::string& folder, int rank, const char* what) {
  fs::create_directories(folder);
  const std::string path = fmt::format("{}/rank_{}.{}", folder, rank, what);
  comm::Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file) throw ConfigError(fmt::format("--enable_each_rank_log {}: {}: {}", folder, path, std::strerror(errno)));
  return file;
}

// Shared memory of ranks that were killed while they were making it.
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

// --save_pid: a line per rank, there while the job runs.
class PidFile {
 public:
  PidFile(bool wanted, const comm::Environment& environment) {
    if (!wanted) return;
    const auto folder = environment.find("TMPDIR");
    path_ = fmt::format("{}/trivet-launch-{}.pids", folder == environment.end() ? "/tmp" : folder->second, ::getpid());
    write_all(STDERR_FILENO, fmt::format("trivet launch: pids are in {}\n", path_));
  }
  ~PidFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  void add(int rank, int pid) const {
    if (!path_.empty()) std::ofstream(path_, std::ios::app) << rank << ' ' << pid << '\n';
  }

 private:
  std::string path_;
};

class Starter {
 public:
  Starter(const LaunchRequest& request, const comm::Environment& inherited)
      : request_(request),
        inherited_(inherited),
        job_id_(comm::hexadecimal(comm::random_bytes(8))),
        file_(find_program(request.program[0], path_of(inherited))),
        listener_(comm::listen_on(request.master_address, request.master_port)),
        secret_(make_secret()) {}

  const std::string& job_id() const { return job_id_; }

  int start_rank(const RankLayout& rank, bool several, Relay& relay) const {
    Start how{.file = file_, .arguments = request_.program, .environment = inherited_, .cores = rank.cores};
    how.inherited = {secret_.number()};
    for (const auto& [name, value] : rank.environment) how.environment[name] = value;
    how.environment["MASTER_PORT"] = std::to_string(comm::port_of(listener_));
    how.environment["TRIVET_JOB_ID"] = job_id_;
    how.environment["TRIVET_EPOCH"] = std::to_string(0);
    how.environment["TRIVET_SECRET_FD"] = std::to_string(secret_.number());
    how.environment.erase("TRIVET_LISTEN_FD");
    if (rank.rank == 0) {
      how.inherited.push_back(listener_.number());
      how.environment["TRIVET_LISTEN_FD"] = std::to_string(listener_.number());
    }
    comm::Descriptor output, error;
    if (!request_.log_folder.empty()) {
      output = open_log(request_.log_folder, rank.rank, "out");
      error = open_log(request_.log_folder, rank.rank, "err");
    } else if (several && rank.rank > 0) {  // rank 0 has the terminal
      output = relay.add(rank.rank, STDOUT_FILENO);
      error = relay.add(rank.rank, STDERR_FILENO);
    }
    how.output = output.number();
    how.error = error.number();
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

}  // namespace

Verdict run_ranks(const LaunchRequest& request, const std::vector<RankLayout>& ranks, const comm::Environment& inherited) {
  const PidFile pids(request.save_pid, inherited);
  auto starter = std::make_unique<Starter>(request, inherited);
  const Leftovers leftovers(starter->job_id());
  Supervisor supervisor(request.quiet);
  for (const RankLayout& rank : ranks) {
    const int pid = starter->start_rank(rank, ranks.size() > 1, supervisor.relay());
    supervisor.watch(rank.rank, pid);
    pids.add(rank.rank, pid);
  }
  starter.reset();  // rank 0 alone holds the port now: when it dies, nobody waits for it
  return supervisor.run();
}

}  // namespace trivet::cli
