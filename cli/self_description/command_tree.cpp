#include "cli/self_description/command_tree.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

namespace trivet::cli {
namespace {

// "{a,b,c}", as CLI::IsMember describes itself.
std::vector<std::string> choices_in(std::string_view text) {
  std::vector<std::string> choices;
  if (!text.starts_with("{") || !text.ends_with("}")) return choices;
  for (const std::string& choice : CLI::detail::split(std::string(text.substr(1, text.size() - 2)), ','))
    choices.push_back(choice);
  return choices;
}

Argument describe_argument(const CLI::Option& option) {
  Argument argument;
  for (const std::string& name : option.get_snames()) argument.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) argument.names.push_back("--" + name);
  if (argument.names.empty()) argument.names.push_back(option.get_name(true));
  if (option.get_items_expected_max() > 0) {
    const std::string type = option.get_type_name();  // TYPE, or TYPE:what is accepted
    const size_t colon = type.find(':');
    argument.value = type.substr(0, colon);
    if (argument.value.empty()) argument.value = "TEXT";
    if (colon != std::string::npos) argument.choices = choices_in(std::string_view(type).substr(colon + 1));
  }
  argument.description = option.get_description();
  if (!option.get_default_str().empty()) argument.description += " [default: " + option.get_default_str() + "]";
  argument.required = option.get_required();
  argument.value_is_optional = !argument.value.empty() && option.get_items_expected_min() == 0;
  argument.repeats = option.get_items_expected_max() > 1;
  return argument;
}

std::string name_with_parents(const CLI::App& command) {
  return command.get_parent() ? name_with_parents(*command.get_parent()) + " " + command.get_name() : command.get_name();
}

void add_below(const Command& command, std::vector<const Command*>& all) {
  all.push_back(&command);
  for (const Command& below : command.commands) add_below(below, all);
}

}  // namespace

Command describe_command(const CLI::App& command) {
  Command described{.name = name_with_parents(command),
                    .description = command.get_description(),
                    .footer = command.get_footer(),
                    .commands_are_optional = command.get_require_subcommand_min() == 0,
                    .takes_program = command.get_prefix_command()};
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;
    auto& list = option->nonpositional() ? described.options : described.positionals;
    list.push_back(describe_argument(*option));
  }
  for (const CLI::App* below : command.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); }))
    described.commands.push_back(describe_command(*below));
  return described;
}

std::vector<const Command*> all_commands(const Command& command) {
  std::vector<const Command*> all;
  add_below(command, all);
  return all;
}

bool takes_files(const Command& command) {
  return std::any_of(command.positionals.begin(), command.positionals.end(),
                     [](const Argument& argument) { return argument.choices.empty(); });
}

std::string last_word(const Command& command) { return command.name.substr(command.name.rfind(' ') + 1); }

}  // namespace trivet::cli
