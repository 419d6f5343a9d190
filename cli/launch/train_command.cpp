#include "cli/launch/train_command.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "core/error.h"
#include "engine/config/load.h"

namespace trivet::cli {
namespace {

// The flags of `trivet train` (cli/train.cpp), as far as they may stand in front of the config.
constexpr std::array<std::string_view, 3> kNamesOfConfig{"--config", "--deepspeed_config", "--deepspeed"};
constexpr std::array<std::string_view, 3> kTakeAValue{"--ranks", "--metrics", "--init-from"};
constexpr std::array<std::string_view, 2> kMayTakeAValue{"--resume", "--serve"};
constexpr std::array<std::string_view, 3> kTakeNone{"--ddp", "--force", "--deepspeed"};

template <size_t N>
bool is_one_of(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::optional<TrainCommand> training_or_tuning(std::vector<std::string> words) {
  if (words.size() > 1 && words[1] == "tune") words[1] = "train";  // their flags for the config are the same
  return train_command(words);
}

}  // namespace

std::optional<TrainCommand> train_command(const std::vector<std::string>& program) {
  if (program.size() < 3 || std::filesystem::path(program[0]).filename() != "trivet" || program[1] != "train")
    return std::nullopt;
  TrainCommand command{.program = program[0]};
  for (size_t i = 2; i < program.size(); ++i) {
    const std::string& word = program[i];
    const bool has_next = i + 1 < program.size(), next_is_value = has_next && !program[i + 1].starts_with("-");
    const size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    const std::string name = word.substr(0, equals), joined = equals == std::string::npos ? "" : word.substr(equals + 1);
    const bool in_one_word = equals != std::string::npos;
    if (name == "--set" && (in_one_word || has_next)) {
      command.overrides.push_back(in_one_word ? joined : program[++i]);
    } else if (is_one_of(kNamesOfConfig, name) && command.config.empty() && (in_one_word || next_is_value)) {
      command.config = in_one_word ? joined : program[++i];
    } else if (!word.starts_with("-") && command.config.empty()) {
      command.config = word;
    } else {
      command.others.push_back(word);
      if (in_one_word || !word.starts_with("-")) continue;
      const bool takes = is_one_of(kTakeAValue, name), may_take = is_one_of(kMayTakeAValue, name);
      if (!takes && !may_take && !is_one_of(kTakeNone, name) && command.config.empty()) return std::nullopt;
      if ((takes && has_next) || (may_take && next_is_value)) command.others.push_back(program[++i]);
    }
  }
  if (command.config.empty()) return std::nullopt;
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
