#include "cli/self_description/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <utility>
#include <vector>

namespace trivet::cli {
namespace {

// "trivet launch --emit" | "trivet launch --device": patterns of a shell's `case` for options of a command.
std::string patterns(const Command& command, const std::vector<std::string>& words) {
  std::string pattern;
  for (const std::string& word : words) pattern += fmt::format("{}\"{} {}\"", pattern.empty() ? "" : " | ", command.name, word);
  return pattern;
}

// The words that lead from the program to one of its commands.
std::string patterns_of_commands(const Command& program) {
  std::string pattern;
  for (const Command* command : all_commands(program))
    for (const Command& below : command->commands) pattern += fmt::format("{}\"{}\"", pattern.empty() ? "" : " | ", below.name);
  return pattern;
}

std::vector<std::string> names_of_options(const Command& command) {
  std::vector<std::string> names;
  for (const Argument& option : command.options) names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

// Returns words that may stand where no option does.
std::vector<std::string> names_of_commands_or_choices(const Command& command) {
  std::vector<std::string> names;
  for (const Command& below : command.commands) names.push_back(last_word(below));
  for (const Argument& argument : command.positionals)
    names.insert(names.end(), argument.choices.begin(), argument.choices.end());
  return names;
}

// A word in single quotes, for sh, bash and zsh.
std::string sh_quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char one : text) quoted += one == '\'' ? std::string("'\\''") : std::string(1, one);
  return quoted + "'";
}

std::string fish_quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char one : text) quoted += one == '\'' || one == '\\' ? std::string("\\") + one : std::string(1, one);
  return quoted + "'";
}

// An entry of zsh's _describe: NAME:DESCRIPTION.
std::string zsh_entry(std::string_view name, const std::string& description) {
  std::string entry;
  for (const char one : name) entry += one == ':' ? std::string("\\:") : std::string(1, one);
  return sh_quoted(entry + ":" + description);
}

// The cases of options with values. `choices` and `files` are the commands that offer them, where {} is the list.
std::string cases_of_values(const Command& program, std::string_view choices, std::string_view files) {
  std::string cases;
  for (const Command* command : all_commands(program))
    for (const Argument& option : command->options) {
      if (option.value.empty()) continue;
      const std::string action =
          option.choices.empty() ? std::string(files) : fmt::format(fmt::runtime(choices), fmt::join(option.choices, " "));
      cases += fmt::format("    {}) {}; return ;;\n", patterns(*command, option.names), action);
    }
  return cases;
}

// Whatever a shell's `case` does with a word before the current one: it leads to a command, or begins another command line of
// trivet (trivet launch trivet train).
std::string cases_of_words(const Command& program) {
  std::string cases = fmt::format("      {}) command=\"$command $word\" ;;\n", patterns_of_commands(program));
  for (const Command* command : all_commands(program))
    if (command->takes_program) cases += fmt::format("      \"{0} {1}\") command={1} ;;\n", command->name, program.name);
  return cases;
}

// Options of one command that several names share (-q, --quiet) are offered by each of them.
std::string zsh_case(const Command& command) {
  std::vector<std::string> options, others;
  for (const Argument& option : command.options)
    for (const std::string& name : option.names) options.push_back(zsh_entry(name, option.description));
  for (const Command& below : command.commands) others.push_back(zsh_entry(last_word(below), below.description));
  for (const Argument& argument : command.positionals)
    for (const std::string& choice : argument.choices) others.push_back(sh_quoted(choice));
  return fmt::format("    \"{}\")\n      options=({})\n      others=({}){} ;;\n", command.name,
                     fmt::join(options, "\n        "), fmt::join(others, "\n        "),
                     takes_files(command) ? "\n      files=yes" : "");
}

std::string fish_names(const Argument& option) {
  std::string flags;
  for (const std::string& name : option.names)
    flags += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  return flags;
}

std::string fish_lines(const Command& command) {
  const std::string start = fmt::format("complete -c trivet -n 'test (__trivet_command) = \"{}\"'", command.name);
  std::string lines;
  for (const Command& below : command.commands)
    lines += fmt::format("{}{} -a {} -d {}\n", start, takes_files(command) ? "" : " -f", last_word(below),
                         fish_quoted(below.description));
  for (const Argument& argument : command.positionals)
    if (!argument.choices.empty())
      lines += fmt::format("{} -f -a '{}' -d {}\n", start, fmt::join(argument.choices, " "), fish_quoted(argument.description));
  for (const Argument& option : command.options) {
    lines += start + fish_names(option);
    const bool takes_the_next_word = !option.value.empty() && !option.value_is_optional;
    if (takes_the_next_word)
      lines += option.choices.empty() ? " -r" : fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
    lines += fmt::format(" -d {}\n", fish_quoted(option.description));
  }
  return lines;
}

}  // namespace

std::string bash_completion(const Command& program) {
  std::string script = R"(# Completion of trivet for bash, written by: trivet completion bash
_trivet() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=trivet word words="" files=no
  # bash splits --device=cpu into three words.
  if [[ $current == "=" ]]; then
    current=""
  elif [[ $previous == "=" ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  COMPREPLY=()
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$command $word" in
)";
  script += cases_of_words(program);
  script += "    esac\n  done\n  case \"$command $previous\" in\n";
  script += cases_of_values(program, "COMPREPLY=($(compgen -W \"{}\" -- \"$current\"))", "COMPREPLY=()");
  script += "  esac\n  case \"$command\" in\n";
  for (const Command* command : all_commands(program))
    script += fmt::format("    \"{}\") words=\"{}\"; [[ $current != -* ]] || words=\"{}\"{} ;;\n", command->name,
                          fmt::join(names_of_commands_or_choices(*command), " "), fmt::join(names_of_options(*command), " "),
                          takes_files(*command) && !command->commands.empty() ? "; files=yes" : "");
  script += R"(  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  # Both a command and a file may stand here. bash would offer files only if there were no command.
  if [[ $files == yes && $current != -* ]]; then
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$current")
    compopt -o filenames 2>/dev/null
  fi
  return 0
}
# Where the function offers nothing, bash completes file names.
complete -o default -F _trivet trivet
)";
  return script;
}

std::string zsh_completion(const Command& program) {
  std::string script = R"(#compdef trivet
# Completion of trivet for zsh, written by: trivet completion zsh
_trivet() {
  local command=trivet word files=no
  local -a options others
  for word in "${(@)words[2,CURRENT-1]}"; do
    case "$command $word" in
)";
  script += cases_of_words(program);
  script += "    esac\n  done\n  case \"$command ${words[CURRENT-1]}\" in\n";
  script += cases_of_values(program, "compadd -- {}", "_files");
  script += "  esac\n  case \"$command\" in\n";
  for (const Command* command : all_commands(program)) script += zsh_case(*command);
  script += R"(  esac
  if [[ ${words[CURRENT]} == -* ]]; then
    _describe -o option options
  elif (( $#others )); then
    _describe command others
    [[ $files == no ]] || _files
  else
    _files
  fi
}
if [[ $funcstack[1] == _trivet ]]; then
  _trivet "$@"
else
  compdef _trivet trivet
fi
)";
  return script;
}

std::string fish_completion(const Command& program) {
  std::vector<std::string> names, programs;
  for (const Command* command : all_commands(program)) {
    for (const Command& below : command->commands) names.push_back(fish_quoted(below.name));
    if (command->takes_program) programs.push_back(fish_quoted(command->name + " " + program.name));
  }
  std::string script = fmt::format(R"(# Completion of trivet for fish, written by: trivet completion fish
function __trivet_command
  set -l command trivet
  for word in (commandline -opc)[2..-1]
    if contains -- "$command $word" {}
      set command "$command $word"
    else if contains -- "$command $word" {}
      set command {}
    end
  end
  echo $command
end
)",
                                   fmt::join(names, " "), fmt::join(programs, " "), program.name);
  for (const Command* command : all_commands(program)) script += fish_lines(*command);
  return script;
}

}  // namespace trivet::cli
