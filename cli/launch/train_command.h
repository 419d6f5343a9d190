// Parses a `trivet train` command line, for callers that need its config.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trivet::cli {

struct TrainCommand {
  std::string program;  // trivet, perhaps with its path
  std::string config;
  std::vector<std::string> overrides;  // values of --set
  std::vector<std::string> others;     // all other words
};

// Nothing for any other program, without a config, or if a flag that is not known here stands in front of it.
std::optional<TrainCommand> train_command(const std::vector<std::string>& program);

// Throws ConfigError if the program is `trivet train` or `trivet tune` and its config is not there or has mistakes.
void check_config_of(const std::vector<std::string>& program);

// Checks whether the program surely uses no GPU: `trivet train` or `trivet tune` with a config whose device is the CPU.
bool runs_on_cpu(const std::vector<std::string>& program);

}  // namespace trivet::cli
