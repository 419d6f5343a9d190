#include "cli/launch/train_command.h"

#include <filesystem>

namespace trivet::cli {

std::optional<TrainCommand> train_command(const std::vector<std::string>& program) {
  if (program.size() < 3 || std::filesystem::path(program[0]).filename() != "trivet" || program[1] != "train")
    return std::nullopt;
  const bool named = program[2] == "--config" || program[2] == "--deepspeed_config" || program[2] == "--deepspeed";
  const size_t place = named ? 3 : 2;
  if (program.size() <= place || program[place].starts_with("-")) return std::nullopt;
  TrainCommand command{.program = program[0], .config = program[place]};
  for (size_t i = place + 1; i < program.size(); ++i) {
    const std::string& word = program[i];
    const bool in_one_word = word.starts_with("--set=");
    if (!in_one_word && (word != "--set" || i + 1 == program.size())) {
      command.others.push_back(word);
      continue;
    }
    command.overrides.push_back(in_one_word ? word.substr(std::string("--set=").size()) : program[++i]);
  }
  return command;
}

}  // namespace trivet::cli
