#include "cli/launch/text_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

void check_is_text(std::string_view text, const std::string& path) {
  const bool is_utf16 = text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF");
  if (is_utf16)
    throw ConfigError(fmt::format("{}: is in UTF-16; save it as UTF-8 (iconv -f UTF-16 -t UTF-8)", printable(path)));
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)
    throw ConfigError(fmt::format("{}: has a NUL character at byte {}; it must be text", printable(path), zero));
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\v\f\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<TextLine> lines_of(std::string_view text, const std::string& path) {
  check_is_text(text, path);
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<TextLine> lines;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find_first_of("\r\n"), text.size());
    if (const std::string_view line = trimmed(text.substr(0, end)); !line.empty())
      lines.push_back({number, std::string(line), fmt::format("{}:{}", printable(path), number)});
    const size_t length_of_end = text.substr(end, 2) == "\r\n" ? 2 : 1;
    text.remove_prefix(std::min(end + length_of_end, text.size()));
  }
  return lines;
}

}  // namespace trivet::cli
