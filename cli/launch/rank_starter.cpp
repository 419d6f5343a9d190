#include "cli/launch/rank_starter.h"

#include <unistd.h>

#include "cli/launch/program.h"

namespace trivet::cli {

RankStarter::RankStarter(const LaunchRequest& request, const comm::Environment& inherited, const Meeting& meeting, int link,
                         bool end_without_guardian)
    : request_(request),
      inherited_(inherited),
      meeting_(meeting),
      link_(link),
      end_without_guardian_(end_without_guardian),
      file_(find_program(request.program[0], path_of(inherited))) {}

pid_t RankStarter::start(const RankLayout& rank, const Relay::Streams& streams) const {
  Start how{.file = file_, .arguments = request_.program, .environment = inherited_, .cores = rank.cores};
  how.inherited = {link_};
  for (const auto& [name, value] : rank.environment) how.environment[name] = value;
  how.environment["MASTER_ADDR"] = meeting_.address;
  how.environment["MASTER_PORT"] = std::to_string(meeting_.port);
  how.environment["TRIVET_LAUNCHER_FD"] = std::to_string(link_);
  how.environment.erase("TRIVET_GUARDIAN_PID");
  if (end_without_guardian_) how.environment["TRIVET_GUARDIAN_PID"] = std::to_string(::getpid());
  if (!meeting_.job_id.empty()) {
    how.environment["TRIVET_JOB_ID"] = meeting_.job_id;
    how.environment["TRIVET_EPOCH"] = std::to_string(request_.restart);
    how.environment["TRIVET_LAUNCH_ID"] = request_.launch_id;
    how.environment["TRIVET_HOST_TIMEOUT"] = std::to_string(request_.host_timeout_s);
  }
  if (meeting_.secret) {
    how.inherited.push_back(meeting_.secret.number());
    how.environment["TRIVET_SECRET_FD"] = std::to_string(meeting_.secret.number());
  }
  how.environment.erase("TRIVET_LISTEN_FD");
  if (rank.rank == 0) {
    how.inherited.push_back(meeting_.listener.number());
    how.environment["TRIVET_LISTEN_FD"] = std::to_string(meeting_.listener.number());
  }
  how.output = streams.output.number();
  how.error = streams.error.number();
  return cli::start(how);
}

}  // namespace trivet::cli
