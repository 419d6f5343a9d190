// The lines of a small text file that people write with any editor, on any system: a hostfile, .deepspeed_env.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trivet::cli {

struct TextLine {
  int number = 1;
  std::string text;   // without blanks at its ends; never empty
  std::string where;  // "hosts:3"
};

// The lines that are not empty. A mark of the byte order (UTF-8) is skipped, and lines may end as on any system. Throws
// ConfigError for text in UTF-16 or with a NUL character.
std::vector<TextLine> lines_of(std::string_view text, const std::string& path);

// Returns the text without the blanks at its ends.
std::string_view trimmed(std::string_view text);

// The parts between the separators, empty ones as well: "a,,b," has four.
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace trivet::cli
