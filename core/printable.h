// Text that somebody else wrote (in a file, an environment variable, a command line, a peer's message), made fit for a message.
//
// Control characters, bytes that are not UTF-8, and characters that turn the direction of writing appear as escapes: \n, \t,
// \x1b, \u202e. So such text can neither forge a line nor send commands to a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trivet {

// Shows at most `most` characters; "..." stands for the rest.
std::string printable(std::string_view text, size_t most = 200);

// A whole message: its line breaks stay and nothing is cut.
std::string printable_lines(std::string_view text);

}  // namespace trivet
