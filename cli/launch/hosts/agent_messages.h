// The messages between launcher and agent, as types. On the wire it is JSON; both sides are of the same build.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch/job_outcome.h"
#include "cli/launch/rank_layout.h"

namespace trivet::cli {

// Launcher to agent: the part of the job that the host is to run.
struct HostTask {
  HostRanks on;
  std::string directory;           // in which the ranks run
  comm::Environment environment;   // added to that of the agent
  std::vector<std::string> files;  // arguments of the program that are files on the launcher's host
  bool one_output = false;         // stdout and stderr go to the same file
  std::string job_id, secret;      // the secret's bytes
  LaunchRequest request;           // only the parts that concern the start of ranks are sent
};

// Agent to launcher: what the task found on the host.
struct HostReport {
  std::string host_name, boot_id;     // the same pair: the same host
  std::vector<std::string> problems;  // why the ranks cannot run there: "/data/train.json: No such file or directory"
  std::string address;  // by which the launcher reached it, and from which: SSH_CONNECTION; empty: it is the same host
  std::string address_of_launcher;
  int cores = 0;
  int64_t memory_bytes = 0;  // available
  int64_t disk_bytes = 0;    // available where the ranks run
  double time = 0;           // seconds since 1970
};

struct Address {
  std::string host;
  int port = 0;
};

// One message of kind AgentMessage::Kind::Control. Exactly one of its members is set.
struct Control {
  // Launcher to agent, in this order. To `listen` and `reach` the agent answers; then the ranks start.
  std::optional<HostTask> task = {};
  std::optional<Address> listen = {};  // only to the host of rank 0; port 0: any
  std::optional<Address> reach = {};   // to the others: try to connect there
  std::optional<Address> start = {};   // rank 0's address
  std::optional<int> order = {};       // a signal, or kFailedElsewhere
  // So many more bytes of what the ranks have printed to stdout and stderr were passed on.
  std::optional<std::array<int64_t, 2>> printed = {};
  bool alive = false;  // in both directions, every second

  // Agent to launcher.
  std::optional<HostReport> report = {};
  std::optional<int> listening = {};        // the port
  std::optional<std::string> reached = {};  // empty, or why the address cannot be reached
  std::optional<std::string> failed = {};   // why the agent cannot continue
  std::optional<JobOutcome> ended = {};     // all ranks of the host have ended
};

std::string encode(const Control& control);
// Throws CommError (Rendezvous) if `text` is not such a message.
Control decode_control(const std::string& text);

}  // namespace trivet::cli
