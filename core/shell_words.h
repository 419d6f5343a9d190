// Command lines for a shell.
#pragma once

#include <string>
#include <vector>

namespace trivet {

// Returns one word of a shell's command line, in single quotes if it needs them.
std::string quoted(const std::string& word);
std::string quoted(const std::vector<std::string>& words);

}  // namespace trivet
