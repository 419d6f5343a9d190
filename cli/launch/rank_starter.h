// Starts the ranks of a job on this host.
#pragma once

#include <sys/types.h>

#include <string>

#include "cli/launch/meeting.h"
#include "cli/launch/rank_layout.h"
#include "cli/launch/relay.h"

namespace trivet::cli {

class RankStarter {
 public:
  // `link` is the ranks' side of the link to the launcher (comm/launcher_link.h). Arguments passed by reference must
  // outlive the starter. With `end_without_guardian`, the ranks end themselves if this process is stopped. Throws
  // ConfigError if there is no such program.
  RankStarter(const LaunchRequest& request, const comm::Environment& inherited, const Meeting& meeting, int link,
              bool end_without_guardian);

  // Returns the pid of the rank, which leads a process group of its own and is killed when this process dies. Text that
  // the rank prints goes to `streams`, or to the launcher's own where there are none. Throws ConfigError if the program
  // cannot be executed.
  pid_t start(const RankLayout& rank, const Relay::Streams& streams) const;

 private:
  const LaunchRequest& request_;
  const comm::Environment& inherited_;
  const Meeting& meeting_;
  const int link_;
  const bool end_without_guardian_;
  const std::string file_;
};

}  // namespace trivet::cli
