// Starts the ranks of a job on one host.
//
// However a host is reached, the start of a rank makes one child of this process, which stands for the rank: the supervisor
// waits for it, takes its exit code for the rank's, and sends the rank's signals to its process group. On this host the child
// is the rank itself (local_starter.h); for another host it would be a program that runs the rank there and passes signals on.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "cli/launch/rank_layout.h"
#include "cli/launch/relay.h"

namespace trivet::cli {

class RankStarter {
 public:
  // Destroying a starter ends no rank. It releases what was needed only to start them.
  virtual ~RankStarter() = default;
  // Returns the pid of the child, which leads a process group of its own and is killed when this process dies. What the rank
  // prints goes to `streams`, or to the launcher's own where there are none. Throws ConfigError if the program cannot be
  // executed.
  virtual pid_t start(const RankLayout& rank, const Relay::Streams& streams) = 0;
};

// A job whose ranks are to be started. The references are valid as long as the starter.
struct StartedJob {
  const LaunchRequest& request;
  const comm::Environment& inherited;  // the launcher's own environment
  std::string job_id;
  int link = -1;  // the ranks' side of the link to the launcher (comm/launcher_link.h)
};

// Called once for each job, by the process that becomes the parent of the ranks.
using MakeRankStarter = std::function<std::unique_ptr<RankStarter>(const StartedJob& job)>;

}  // namespace trivet::cli
