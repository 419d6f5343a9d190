#include "cli/usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "core/error.h"
#include "core/log.h"
#include "core/printable.h"
#include "engine/config/other_programs.h"
#include "engine/config/suggest.h"

namespace trivet::cli {
namespace {

// Lists the subcommands that are meant for people.
std::vector<std::string> names_of_subcommands(const CLI::App& group) {
  std::vector<std::string> names;
  for (const CLI::App* subcommand : group.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); }))
    names.push_back(subcommand->get_name());
  return names;
}

// Checks whether a word that is not a subcommand can be a value: `trivet report runs/first`.
bool takes_words(const CLI::App& command) {
  const auto options = command.get_options();
  return std::any_of(options.begin(), options.end(), [](const CLI::Option* option) { return option->get_positional(); });
}

void check_subcommand(const CLI::App& group, int argc, char** argv, int position) {
  const auto names = names_of_subcommands(group);
  if (names.empty() || position >= argc || argv[position][0] == '-') return;
  const std::string word = argv[position];
  if (!group.get_subcommands([&](const CLI::App* one) { return one->get_name() == word; }).empty())
    return check_subcommand(*group.get_subcommand(word), argc, argv, position + 1);
  if (takes_words(group)) return;
  const auto near = config::nearest_names(word, names);
  throw ConfigError(fmt::format(
      "\"{}\" is not a subcommand of {}; {}", printable(word), group.get_name(),
      near.empty() ? fmt::format("use one of {}", fmt::join(names, ", ")) : "did you mean " + config::one_of(near) + "?"));
}

const CLI::App& given_command(const CLI::App& program) {
  const auto given = program.get_subcommands();
  return given.empty() ? program : given_command(*given.back());
}

std::string whole_name(const CLI::App& command) {
  return command.get_parent() ? whole_name(*command.get_parent()) + " " + command.get_name() : command.get_name();
}

std::string describe_extra(const CLI::App& program, const CLI::App& command) {
  const auto extra = program.remaining(true);
  for (const std::string& word : extra)
    if (word.size() > 1 && word[0] == '-') return unknown_flag(command, word);
  return extra.empty() ? "" : fmt::format("\"{}\" is not expected", printable(extra.front()));
}

std::string kind_of_value(const CLI::Option* option) {
  const std::string type = option ? option->get_type_name() : "";
  if (option && option->check_name("--nproc_per_node"))
    return "a whole number is expected; leave it out to start one rank per GPU";
  if (type.starts_with("INT") || type.starts_with("UINT")) return "a whole number is expected";
  if (type.starts_with("FLOAT")) return "a number is expected";
  return "another value is expected";
}

// CLI11: "Could not convert: NAME = VALUE"
std::string describe_conversion(const CLI::App& command, const std::string& message) {
  const std::string start = "Could not convert: ";
  const size_t equals = message.find(" = ");
  if (!message.starts_with(start) || equals == std::string::npos) return message;
  const std::string name = message.substr(start.size(), equals - start.size());
  return fmt::format("{}: \"{}\" is not accepted; {}", name, message.substr(equals + 3),
                     kind_of_value(command.get_option_no_throw(name)));
}

// CLI11: "NAME: 1 required INT missing"
std::string describe_mismatch(const std::string& message) {
  const size_t name_end = message.find(": 1 required ");
  return name_end == std::string::npos ? message : message.substr(0, name_end) + ": a value is missing";
}

std::string describe_missing(const CLI::App& command, const std::string& message) {
  const auto names = names_of_subcommands(command);
  return names.empty() || takes_words(command) ? message
                                               : fmt::format("a subcommand is required; use one of {}", fmt::join(names, ", "));
}

template <typename Kind>
bool is(const CLI::ParseError& error) {
  return dynamic_cast<const Kind*>(&error) != nullptr;
}

std::string what_is_wrong(const CLI::App& program, const CLI::App& command, const CLI::ParseError& error) {
  const std::string message = error.what();
  if (is<CLI::ExtrasError>(error) || is<CLI::RequiredError>(error)) {  // a misspelt flag also leaves a required one missing
    const std::string extra = describe_extra(program, command);
    return extra.empty() ? describe_missing(command, message) : extra;
  }
  if (is<CLI::ConversionError>(error)) return describe_conversion(command, message);
  if (is<CLI::ArgumentMismatch>(error)) return describe_mismatch(message);
  return message;
}

// Texts of which an empty one is a text.
constexpr std::array<std::string_view, 2> kMayBeEmpty{"--prompt", "--system"};

[[noreturn]] void refuse_empty_value(const CLI::App& command, const std::string& name) {
  throw ConfigError(with_help(command, name + ": an empty value is not accepted; give it a value, or leave it out"));
}

// "--hostfile", "-H" or "--hostfile=FILE"; none if the command has no such flag.
const CLI::Option* flag_of(const CLI::App& command, const std::string& word) {
  return word.size() < 2 || word[0] != '-' ? nullptr : command.get_option_no_throw(word.substr(0, word.find('=')));
}

bool takes_a_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

void check_no_empty_values(const CLI::App& command, const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const CLI::Option* flag = flag_of(command, word);
    const bool may_be_empty = std::find(kMayBeEmpty.begin(), kMayBeEmpty.end(), word) != kMayBeEmpty.end();
    if (flag && word.ends_with('=') && word.find('=') + 1 == word.size())
      refuse_empty_value(command, word.substr(0, word.size() - 1));
    if (flag && takes_a_value(*flag) && word.find('=') == std::string::npos && i + 1 < words.size()) {
      if (words[i + 1].empty() && !may_be_empty) refuse_empty_value(command, word);
      if (flag->get_items_expected_min() > 0 || words[i + 1].empty()) ++i;
    } else if (word.empty()) {
      refuse_empty_value(command, "\"\"");
    } else if (command.get_prefix_command() && word[0] != '-') {
      return;  // the program with its own arguments
    }
  }
}

struct NamedCommand {
  const CLI::App* command = nullptr;
  int arguments = 1;  // where its own arguments begin
};

NamedCommand named_command(const CLI::App& program, int argc, char** argv) {
  NamedCommand named{&program};
  for (; named.arguments < argc; ++named.arguments) {
    const auto found =
        named.command->get_subcommands([&](const CLI::App* one) { return one->get_name() == argv[named.arguments]; });
    if (found.empty()) break;
    named.command = found.front();
  }
  return named;
}

}  // namespace

void check_no_empty_values(const CLI::App& program, int argc, char** argv) {
  const auto [command, arguments] = named_command(program, argc, argv);
  check_no_empty_values(*command, std::vector<std::string>(argv + arguments, argv + argc));
}

int without_separator(const CLI::App& program, int argc, char** argv) {
  const auto [command, arguments] = named_command(program, argc, argv);
  if (!command->get_prefix_command()) return argc;
  for (int at = arguments; at < argc && argv[at][0] == '-'; ++at) {
    const std::string word = argv[at];
    if (word == "--") {
      std::copy(argv + at + 1, argv + argc + 1, argv + at);  // with the null pointer at the end
      return argc - 1;
    }
    const CLI::Option* flag = flag_of(*command, word);
    if (flag && flag->get_items_expected_min() > 0 && word.find('=') == std::string::npos) ++at;
  }
  return argc;
}

void check_subcommand(const CLI::App& program, int argc, char** argv) { check_subcommand(program, argc, argv, 1); }

// Returns the name here for a flag of Hugging Face's Trainer; empty: it is not known.
std::string known_elsewhere(const std::string& flag) {
  const std::string name = config::lower_words(flag.substr(std::min(flag.find_first_not_of('-'), flag.size())));
  if (name == "resume_from_checkpoint") return "--resume [DIRECTORY]";
  if (name == "model_name_or_path") return "--init-from FOLDER";
  const std::string key = config::key_meant_by(name);
  return key.empty() ? "" : fmt::format("--set {}=VALUE", key);
}

std::string unknown_flag(const CLI::App& command, const std::string& word) {
  const std::string flag = word.substr(0, word.find('='));
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    if (!option->get_group().empty())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const auto near = config::nearest_names(flag, names);
  if (near.empty() && command.get_option_no_throw("--set"))
    if (const std::string known = known_elsewhere(flag); !known.empty())
      return printable(flag) + ": unknown flag; here it is " + known;
  return printable(flag) + ": unknown flag" + (near.empty() ? "" : "; did you mean " + config::one_of(near) + "?");
}

std::string with_help(const CLI::App& command, const std::string& wrong) {
  const std::string name = whole_name(command);
  const std::string place = command.get_parent() ? name.substr(name.find(' ') + 1) + ": " : "";
  return fmt::format("{}{}{} see {} --help", place, wrong, wrong.ends_with('?') ? "" : ";", name);
}

std::function<std::string(const std::string&)> from_to(int64_t least, int64_t most) {
  return [least, most](const std::string& text) -> std::string {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    if (whole && value >= least && value <= most) return "";
    return fmt::format("{} is not accepted; use {} to {}", text, least, most);
  };
}

std::string describe(const CLI::App& program, const CLI::ParseError& error) {
  const CLI::App& command = given_command(program);
  return with_help(command, escape_control(what_is_wrong(program, command, error)));
}

}  // namespace trivet::cli
