// Makes text from outside (a file, an environment variable, a command line, a peer's message) safe to print in a message.
//
// Control characters, bytes that are not UTF-8, and characters that change the direction of writing are printed as escapes: \n,
// \t, \x1b, \u202e. Such text can then neither forge a line nor send commands to a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trivet {

// Shows at most `most` characters; "..." stands for the rest.
std::string printable(std::string_view text, size_t most = 200);

// Prints a whole message: keeps its line breaks and cuts nothing.
std::string printable_lines(std::string_view text);

}  // namespace trivet
