#include "cli/launch/train_command.h"

#include <filesystem>

#include "core/error.h"
#include "engine/config/load.h"

namespace trivet::cli {
namespace {

std::optional<TrainCommand> training_or_tuning(std::vector<std::string> words) {
  if (words.size() > 1 && words[1] == "tune") words[1] = "train";  // their flags for the config are the same
  return train_command(words);
}

}  // namespace

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

void check_config_of(const std::vector<std::string>& program) {
  if (const auto command = training_or_tuning(program)) load_config(command->config, command->overrides);
}

bool runs_on_cpu(const std::vector<std::string>& program) {
  const auto command = training_or_tuning(program);
  if (!command) return false;
  try {
    return load_config(command->config, command->overrides).device == DeviceChoice::Cpu;
  } catch (const Error&) {
    return false;  // the ranks will say why
  }
}

}  // namespace trivet::cli
