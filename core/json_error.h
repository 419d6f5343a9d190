// Says in words what is wrong with JSON that somebody else wrote: nlohmann's own texts begin with its codes, speak of
// tokens and lexers, and give no reason that helps.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace trivet {

// "line 2, column 27 has NaN, which is no number of JSON; write null or leave the key out". `error` is what nlohmann threw for
// `text`, while parsing it or while reading a value of it. Quoted text is printable.
std::string json_error_in_words(std::string_view text, const std::exception& error);

}  // namespace trivet
