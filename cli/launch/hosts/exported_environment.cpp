#include "cli/launch/hosts/exported_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "core/error.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

constexpr std::array<std::string_view, 7> kPrefixes{"NCCL", "UCX", "PYTHON", "MLFLOW", "MV2", "OMP_", "TRIVET_"};
constexpr std::array<std::string_view, 6> kOfOneProcess{"TRIVET_SECRET_FD",   "TRIVET_SECRET_FILE", "TRIVET_LISTEN_FD",
                                                        "TRIVET_LAUNCHER_FD", "TRIVET_JOB_ID",      "TRIVET_EPOCH"};

bool is_exported(std::string_view name) {
  return std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](std::string_view prefix) { return name.starts_with(prefix); }) &&
         std::find(kOfOneProcess.begin(), kOfOneProcess.end(), name) == kOfOneProcess.end();
}

bool is_name(std::string_view name) {
  return !name.empty() && name.find_first_of("0123456789") != 0 &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string_view::npos;
}

std::string value_of(const comm::Environment& environment, const std::string& name, const std::string& otherwise) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? otherwise : found->second;
}

}  // namespace

comm::Environment parse_environment_file(const std::string& text, const std::string& path) {
  comm::Environment variables;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos || line[0] == '#') continue;
    const size_t equals = line.find('=');
    const std::string name = line.substr(0, equals);
    if (equals == std::string::npos || !is_name(name))
      throw ConfigError(
          fmt::format("{}:{}: \"{}\" is not accepted; write NAME=VALUE", printable(path), number, printable(line)));
    variables[name] = line.substr(equals + 1);
  }
  return variables;
}

comm::Environment exported_environment(const comm::Environment& environment) {
  comm::Environment exported;
  for (const auto& [name, value] : environment)
    if (is_exported(name)) exported[name] = value;
  const std::string file_name = value_of(environment, "DS_ENV_FILE", ".deepspeed_env");
  for (const std::string& folder : {value_of(environment, "HOME", "."), std::string(".")}) {
    const std::string path = std::filesystem::path(folder) / file_name;
    std::ifstream file(path);
    if (!file) continue;
    std::ostringstream text;
    text << file.rdbuf();
    for (const auto& [name, value] : parse_environment_file(text.str(), path)) exported[name] = value;
  }
  return exported;
}

}  // namespace trivet::cli
