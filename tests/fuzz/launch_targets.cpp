// Fuzz targets for what the launcher reads: messages of agents, hosts of a job, files with variables.
#include "cli/launch/hostfile.h"
#include "cli/launch/hosts/agent_messages.h"
#include "cli/launch/hosts/exported_environment.h"
#include "cli/launch/job_outcome.h"
#include "tests/fuzz/targets.h"

namespace trivet::fuzz {

void agent(std::string_view input) {
  const std::string text(input);
  cli::Control control;
  if (accepts({ExitCode::Rendezvous}, [&] { control = cli::decode_control(text); })) {
    const std::string written = cli::encode(control);
    require(cli::encode(cli::decode_control(written)) == written, "what was read, written and read again is the same");
  }
  if (const auto end = cli::rank_end_from_message(text))
    require(cli::rank_end_from_message(cli::to_message(*end)).has_value(), "an end that was read can be sent");
}

void world(std::string_view input) {
  std::vector<cli::Host> hosts;
  if (!accepts({ExitCode::Usage}, [&] { hosts = cli::parse_world(std::string(input)); })) return;
  const auto again = cli::parse_world(cli::world_of(hosts));
  require(again.size() == hosts.size(), "as many hosts are read again");
  for (size_t i = 0; i < hosts.size(); ++i)
    require(again[i].name == hosts[i].name && again[i].slots == hosts[i].slots, "each host is read again as it was");
}

void environment_file(std::string_view input) {
  comm::Environment variables;
  if (!accepts({ExitCode::Usage}, [&] { variables = cli::parse_environment_file(std::string(input), "input"); })) return;
  std::string written;
  for (const auto& [name, value] : variables) {
    const bool has_single = value.find('\'') != std::string::npos, has_double = value.find('"') != std::string::npos;
    const std::string quote = !has_single ? "'" : !has_double ? "\"" : "";
    written += name + "=" + quote + value + quote + "\n";
  }
  require(cli::parse_environment_file(written, "written") == variables, "what was read, written and read again is the same");
}

}  // namespace trivet::fuzz
