#include "cli/launch/local_starter.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "cli/launch/program.h"
#include "cli/launch/shortage.h"
#include "comm/secret.h"
#include "comm/socket.h"

namespace trivet::cli {
namespace {

// The secret is in memory only; every rank inherits its descriptor and reads it from the beginning.
Descriptor make_secret() {
  Descriptor secret(::memfd_create("trivet-secret", MFD_CLOEXEC));
  if (!secret) throw shortage("cannot make a secret for the job", errno);
  const std::string bytes = comm::random_bytes(32);
  if (::write(secret.number(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    throw shortage("cannot make a secret for the job", errno);
  return secret;
}

std::string path_of(const comm::Environment& environment) {
  const auto path = environment.find("PATH");
  return path == environment.end() ? "/usr/local/bin:/usr/bin:/bin" : path->second;
}

class LocalStarter final : public RankStarter {
 public:
  explicit LocalStarter(const StartedJob& job)
      : job_(job),
        file_(find_program(job.request.program[0], path_of(job.inherited))),
        listener_(comm::listen_on(job.request.master_address, job.request.master_port)),
        secret_(make_secret()) {}

  pid_t start(const RankLayout& rank, const Relay::Streams& streams) override {
    Start how{.file = file_, .arguments = job_.request.program, .environment = job_.inherited, .cores = rank.cores};
    how.inherited = {secret_.number(), job_.link};
    for (const auto& [name, value] : rank.environment) how.environment[name] = value;
    how.environment["MASTER_PORT"] = std::to_string(comm::port_of(listener_));
    how.environment["TRIVET_JOB_ID"] = job_.job_id;
    how.environment["TRIVET_EPOCH"] = std::to_string(0);
    how.environment["TRIVET_SECRET_FD"] = std::to_string(secret_.number());
    how.environment["TRIVET_LAUNCHER_FD"] = std::to_string(job_.link);
    how.environment.erase("TRIVET_LISTEN_FD");
    if (rank.rank == 0) {
      how.inherited.push_back(listener_.number());
      how.environment["TRIVET_LISTEN_FD"] = std::to_string(listener_.number());
    }
    how.output = streams.output.number();
    how.error = streams.error.number();
    return cli::start(how);
  }

 private:
  const StartedJob job_;
  const std::string file_;
  const Descriptor listener_, secret_;
};

}  // namespace

std::unique_ptr<RankStarter> make_local_starter(const StartedJob& job) { return std::make_unique<LocalStarter>(job); }

}  // namespace trivet::cli
