// Describes the program's command line as plain data, taken from the CLI11 definitions that also parse it. Man pages
// and shell completions are written from it. It leaves out what is hidden (group "").
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace trivet::cli {

struct Argument {
  std::vector<std::string> names;    // for an option: -q, --quiet; for a positional argument: one name without dashes
  std::string value;                 // the type of its value (INT, TEXT); empty for a flag
  std::vector<std::string> choices;  // the accepted values, if these are few
  std::string description;
  bool required = false, repeats = false, value_is_optional = false;
};

struct Command {
  std::string name;  // all words: "trivet config check"
  std::string description, footer;
  std::vector<Argument> positionals, options;
  std::vector<Command> commands;
  bool commands_are_optional = false;
  bool takes_program = false;  // another program's command line follows
};

Command describe_command(const CLI::App& command);

// The command and all below it, each before its own subcommands. The pointers are valid as long as `command`.
std::vector<const Command*> all_commands(const Command& command);

// Checks whether a positional argument may be a file: it accepts more than a few values.
bool takes_files(const Command& command);

// The last word of the name.
std::string last_word(const Command& command);

}  // namespace trivet::cli
