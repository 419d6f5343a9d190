// Finds, before any rank starts, what keeps hosts from running their ranks, and shows it as a table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/launch/hosts/agent_messages.h"
#include "core/error.h"

namespace trivet::cli {

struct HostState {
  HostRanks on;
  std::optional<HostReport> report = {};  // none: the host has not answered
  double clock_ahead_s = 0;               // its clock against the launcher's
  std::vector<std::string> problems = {};
  ExitCode code = ExitCode::Rendezvous;  // code of the first problem
};

void add_problem(HostState& host, ExitCode code, std::string text);

// Adds what the reports show in comparison: names that mean the same host, and clocks that differ.
void compare_reports(std::vector<HostState>& hosts);

// One line per host, and one more for each further problem.
std::string table_of(const std::vector<HostState>& hosts);

// "2 of 4 hosts cannot run their ranks; the first is b: /data/x.json: No such file or directory"; none if all can.
std::optional<Error> error_of(const std::vector<HostState>& hosts);

}  // namespace trivet::cli
