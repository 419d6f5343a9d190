// `trivet launch --autotuning tune|run ... trivet train CONFIG ...`: the ranks that would train tune first, in the allocation
// that is there; with "run" as many ranks then train with what was found.
#pragma once

#include <string>
#include <vector>

namespace trivet::cli {

struct AutotunedPrograms {
  std::vector<std::string> tune;   // trivet tune CONFIG --set ...
  std::vector<std::string> train;  // trivet train BEST ..., without the --set that BEST has in it
};

// From `trivet train CONFIG ...`. Throws ConfigError for another program, or a config that cannot be loaded.
AutotunedPrograms autotuned(const std::vector<std::string>& program);

}  // namespace trivet::cli
