// The launcher's side of the agent on one host: the program that runs it there, such as ssh, and what it says.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch/hosts/agent_channel.h"
#include "cli/launch/hosts/agent_messages.h"
#include "core/descriptor.h"

namespace trivet::cli {

class HostAgent {
 public:
  // Starts the program `command`. Throws ConfigError if there is none.
  HostAgent(const std::vector<std::string>& command, const comm::Environment& environment);
  // Kills the program; the agent notices that and ends its ranks.
  ~HostAgent();
  HostAgent(const HostAgent&) = delete;
  HostAgent& operator=(const HostAgent&) = delete;

  void send(const Control& control);
  void add_to(std::vector<pollfd>& entries) const;
  void step();
  // Throws CommError (Rendezvous) if something else than a message arrived.
  std::optional<AgentMessage> next() { return channel_->next(); }
  // A line that the program, or the shell on the other host, has printed to standard error.
  std::optional<std::string> next_complaint();

  const std::optional<std::string>& build() const { return channel_->build(); }
  // The agent is gone and has said everything.
  bool has_ended() const { return channel_->has_ended(); }
  // Returns why the agent ended: "ssh: connect to host b port 22: No route to host", "exit code 127".
  std::string why_it_ended();
  // True if a shell on the other host said, by its exit code, that it cannot run the agent.
  bool found_no_program() const;

 private:
  void end_complaint();

  pid_t pid_ = -1;
  std::optional<int> status_;  // once it has ended
  Descriptor input_, output_, error_;
  std::optional<AgentChannel> channel_;
  std::string error_text_;
  std::deque<std::string> complaints_;
  std::string last_complaint_;
};

}  // namespace trivet::cli
