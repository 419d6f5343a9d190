#include "cli/launch/autotuning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "autotune/tune/results.h"
#include "core/error.h"
#include "engine/config/load.h"

namespace trivet::cli {
namespace {

bool is_trivet_train(const std::vector<std::string>& program) {
  return program.size() >= 3 && std::filesystem::path(program[0]).filename() == "trivet" && program[1] == "train" &&
         !program[2].starts_with("-");
}

}  // namespace

AutotunedPrograms autotuned(const std::vector<std::string>& program) {
  if (!is_trivet_train(program))
    throw ConfigError(
        fmt::format("--autotuning: \"{}\" cannot be tuned; PROGRAM must be: trivet train CONFIG, with its flags "
                    "after the config",
                    fmt::join(program, " ")));
  AutotunedPrograms programs{.tune = {program[0], "tune", program[2]}, .train = {program[0], "train"}};
  std::vector<std::string> overrides, others;
  for (size_t i = 3; i < program.size(); ++i) {
    const std::string& word = program[i];
    const bool in_one_word = word.starts_with("--set=");
    if (!in_one_word && (word != "--set" || i + 1 == program.size())) {
      others.push_back(word);
      continue;
    }
    overrides.push_back(in_one_word ? word.substr(std::string("--set=").size()) : program[++i]);
    programs.tune.insert(programs.tune.end(), {"--set", overrides.back()});
  }
  programs.train.push_back(autotune::optimal_config(load_config(program[2], overrides).autotuning));
  programs.train.insert(programs.train.end(), others.begin(), others.end());
  return programs;
}

}  // namespace trivet::cli
