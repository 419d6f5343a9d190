// `trivet launch --autotuning tune|run ... trivet train CONFIG ...`: the ranks that would train tune first, in the same
// allocation; with "run", the same number of ranks then trains with the config that was found.
#pragma once

#include <string>
#include <vector>

namespace trivet::cli {

enum class AfterTuning { End, Train };  // "tune", "run"

struct AutotunedPrograms {
  std::vector<std::string> tune;   // trivet tune CONFIG --set ...
  std::vector<std::string> train;  // trivet train BEST ..., without the --set flags that BEST includes
};

// Derives both commands from `trivet train CONFIG ...`. Each flag goes to the tuning, to the training or to both. Throws
// ConfigError for any other program, for a flag that would have no effect (one of the training, if none follows) or that
// contradicts tuning, and if the config cannot be loaded.
AutotunedPrograms autotuned(const std::vector<std::string>& program, AfterTuning after);

}  // namespace trivet::cli
