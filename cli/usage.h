// Describes what is wrong with a command line, in one line that says what to do about it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace trivet::cli {

inline constexpr std::string_view kVersion = "0.1.0";

// Throws ConfigError if the word in the place of a subcommand is not one. CLI11 would only say that a subcommand is required.
void check_subcommand(const CLI::App& program, int argc, char** argv);

// Throws ConfigError for a flag or an argument with an empty value ("--hostfile "$HOSTS"" where HOSTS is not set): it must not
// count as not given. Arguments of the PROGRAM of trivet launch are left alone.
void check_no_empty_values(const CLI::App& program, int argc, char** argv);

// Removes the "--" that may stand between the flags of `trivet launch` and PROGRAM: CLI11 would then no longer take the words
// after it for a program. Returns the new number of arguments.
int without_separator(const CLI::App& program, int argc, char** argv);

// `--rank: unknown flag; did you mean "--ranks"?`
std::string unknown_flag(const CLI::App& command, const std::string& word);

// `train: WRONG; see trivet train --help`
std::string with_help(const CLI::App& command, const std::string& wrong);

// Returns a check for CLI::Option::check: it accepts a whole number from `least` to `most`.
std::function<std::string(const std::string&)> from_to(int64_t least, int64_t most);

std::string describe(const CLI::App& program, const CLI::ParseError& error);

}  // namespace trivet::cli
