// UTF-8, one code point at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trivet {

struct CodePoint {
  char32_t value = 0;
  int bytes = 0;  // 0: the text is not valid UTF-8 here
};

// The code point that starts at `position` (which must be inside the text). Overlong forms, surrogates and values above
// U+10FFFF are not UTF-8.
CodePoint decode_utf8(std::string_view text, size_t position);
void append_utf8(std::string& text, char32_t code_point);
bool is_utf8(std::string_view text);
// Describes a code point for messages: "\"q\" (U+0071)"
std::string describe_code_point(char32_t code_point);

}  // namespace trivet
