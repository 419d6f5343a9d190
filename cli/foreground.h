// Runs another program as a shell does: in the foreground of the terminal, until it ends.
#pragma once

#include <string>
#include <vector>

namespace trivet::cli {

// `words` are its arguments, beginning with its name. `output` becomes its stdout; -1: this program's own. While it runs, this
// program ignores the interrupts of the terminal (SIGINT, SIGQUIT), which the other one receives, too. Returns its exit code,
// or 128 + the signal that ended it. Throws ConfigError if it cannot be started.
int run_in_foreground(const std::string& file, const std::vector<std::string>& words, int output = -1);

}  // namespace trivet::cli
