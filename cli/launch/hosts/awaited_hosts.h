// Retries lost hosts while a job runs without them: starts an agent there, which inspects the host again.
#pragma once

#include <poll.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch/hosts/agent_messages.h"
#include "cli/launch/hosts/host_agent.h"

namespace trivet::cli {

// The time from the loss of a host, or the end of an attempt, to the next attempt.
inline constexpr std::chrono::seconds kLookForHostEvery{10};

class AwaitedHosts {
 public:
  // `task` is that of the job, without the part of a host.
  AwaitedHosts(const LaunchRequest& request, const comm::Environment& inherited, HostTask task);

  void add_to(std::vector<pollfd>& entries) const;
  // Begins attempts, and reads what the agents say.
  void step();
  // A host that could run its ranks now.
  const std::optional<std::string>& returned() const { return returned_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Awaited {
    Host host;
    Clock::time_point next_attempt;
    std::unique_ptr<HostAgent> agent = {};  // the agent of an attempt that has not ended
    bool has_task = false;
  };
  // Checks whether the attempt has ended.
  bool step(Awaited& awaited);

  const LaunchRequest& request_;
  const comm::Environment& inherited_;
  HostTask task_;
  std::vector<Awaited> hosts_;
  std::optional<std::string> returned_;
};

}  // namespace trivet::cli
