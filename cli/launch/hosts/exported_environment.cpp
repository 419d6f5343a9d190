#include "cli/launch/hosts/exported_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "cli/launch/rank_variables.h"
#include "cli/launch/text_lines.h"
#include "core/error.h"
#include "core/found_file.h"
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

[[noreturn]] void refuse_variable(const TextLine& line, const std::string& why) {
  throw ConfigError(fmt::format("{}: \"{}\" {}", line.where, printable(line.text), why));
}

// A shell would put something else in the place of "$NAME", "$(command)" and "`command`".
void refuse_what_a_shell_would_replace(const TextLine& line, std::string_view value) {
  for (size_t at = value.find_first_of("$`"); at != std::string_view::npos; at = value.find_first_of("$`", at + 1)) {
    if (value[at] == '$' && (at + 1 == value.size() || value[at + 1] == ' ' || value[at + 1] == '\t')) continue;
    refuse_variable(
        line, fmt::format("is not accepted: no shell reads this file, so \"{}\" would stay as it is; write the value for the "
                          "hosts, or put all of it in single quotes if that is meant",
                          printable(value.substr(at, 40))));
  }
}

// 'as it is', "with blanks at its ends ", or up to a comment. After `export`, a shell would take blanks for the end of the
// value, as whoever wrote the line may have meant.
std::string value_in(const TextLine& line, std::string_view given, bool is_shells) {
  const std::string_view text = trimmed(given);
  if (text.starts_with('#') && !given.starts_with('#')) return "";
  if (!text.starts_with('\'') && !text.starts_with('"')) {
    const std::string_view value = trimmed(text.substr(0, std::min(text.find(" #"), text.find("\t#"))));
    refuse_what_a_shell_would_replace(line, value);
    if (is_shells && value.find_first_of(" \t") != std::string_view::npos)
      refuse_variable(line,
                      "is not accepted: its value has a blank, at which a shell would end it; give each variable a line of its "
                      "own, or put all of the value in quotes if the blank is part of it");
    return std::string(value);
  }
  const size_t end = text.find(text[0], 1);
  if (end == std::string_view::npos) refuse_variable(line, fmt::format("opens a quote {} that has no end", text[0]));
  const std::string_view rest = trimmed(text.substr(end + 1)), value = text.substr(1, end - 1);
  if (!rest.empty() && rest[0] != '#')
    refuse_variable(line,
                    fmt::format("goes on after the quote {} that ends its value; put all of the value between quotes, and "
                                "each variable in a line of its own",
                                text[0]));
  if (text[0] == '"') refuse_what_a_shell_would_replace(line, value);
  return std::string(value);
}

}  // namespace

comm::Environment parse_environment_file(const std::string& text, const std::string& path) {
  constexpr std::string_view kExport = "export";
  comm::Environment variables;
  for (const TextLine& line : lines_of(text, path)) {
    std::string_view rest = line.text;
    if (rest[0] == '#') continue;
    const bool is_shells = rest.starts_with("export ") || rest.starts_with("export\t");
    if (is_shells) rest = trimmed(rest.substr(kExport.size()));
    const size_t equals = rest.find('=');
    const std::string name(trimmed(rest.substr(0, equals)));
    if (equals == std::string_view::npos || !is_name(name)) refuse_variable(line, "is not accepted; write NAME=VALUE");
    if (std::find(kRankVariables.begin(), kRankVariables.end(), name) != kRankVariables.end())
      refuse_variable(line,
                      "is not accepted: the launcher gives this variable to each rank itself (hostfile, --master_addr, "
                      "--master_port, --host-timeout); remove the line");
    if (variables.contains(name)) refuse_variable(line, fmt::format("sets {} again; keep one of the lines", name));
    variables[name] = value_in(line, rest.substr(equals + 1), is_shells);
  }
  return variables;
}

std::vector<std::string> places_of_environment_files(const comm::Environment& environment) {
  const std::string file_name = value_of(environment, "DS_ENV_FILE", ".deepspeed_env");
  std::vector<std::string> places;
  for (const std::string& folder : {value_of(environment, "HOME", "."), std::string(".")}) {
    const std::string path = (std::filesystem::path(folder) / file_name).string();
    if (std::find(places.begin(), places.end(), path) == places.end()) places.push_back(path);
  }
  return places;
}

comm::Environment exported_environment(const comm::Environment& environment) {
  comm::Environment exported;
  for (const auto& [name, value] : environment)
    if (is_exported(name)) exported[name] = value;
  const std::string chosen = value_of(environment, "DS_ENV_FILE", "");
  bool exists = chosen.empty();
  for (const std::string& path : places_of_environment_files(environment)) {
    const FoundText found = chosen.empty() ? read_found_file(path, "keep the variables in ~/.deepspeed_env")
                                           : read_found_file(path, "unset the variable", "DS_ENV_FILE");
    exists = exists || found.exists;
    for (const auto& [name, value] : parse_environment_file(found.text, path)) exported[name] = value;
  }
  if (!exists)
    throw ConfigError(
        fmt::format("DS_ENV_FILE={}: there is no such file, neither in the home directory nor in this one; correct the name, "
                    "or unset the variable",
                    printable(chosen)));
  return exported;
}

}  // namespace trivet::cli
