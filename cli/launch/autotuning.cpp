#include "cli/launch/autotuning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "autotune/tune/results.h"
#include "cli/launch/train_command.h"
#include "core/error.h"
#include "engine/config/load.h"

namespace trivet::cli {

AutotunedPrograms autotuned(const std::vector<std::string>& program) {
  const auto given = train_command(program);
  if (!given)
    throw ConfigError(
        fmt::format("--autotuning: \"{}\" cannot be tuned; PROGRAM must be: trivet train CONFIG, with its flags "
                    "after the config",
                    fmt::join(program, " ")));
  AutotunedPrograms programs{.tune = {given->program, "tune", given->config}, .train = {given->program, "train"}};
  for (const std::string& override : given->overrides) programs.tune.insert(programs.tune.end(), {"--set", override});
  programs.train.push_back(autotune::optimal_config(load_config(given->config, given->overrides).autotuning));
  programs.train.insert(programs.train.end(), given->others.begin(), given->others.end());
  return programs;
}

}  // namespace trivet::cli
