// Completion of the program's command line: a script for each shell. It offers subcommands, options and the accepted values of
// options; where any value is accepted, file names.
#pragma once

#include <string>

#include "cli/self_description/command_tree.h"

namespace trivet::cli {

std::string bash_completion(const Command& program);
std::string zsh_completion(const Command& program);
std::string fish_completion(const Command& program);

}  // namespace trivet::cli
