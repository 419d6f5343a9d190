#include "core/printable.h"

#include <fmt/format.h>

#include "core/utf8.h"

namespace trivet {
namespace {

// Checks whether a terminal acts on `c`: C0 and C1 controls, line and paragraph separators, direction marks.
bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069);
}

void append_escaped(std::string& out, char32_t c) {
  if (c == '\n') {
    out += "\\n";
  } else if (c == '\t') {
    out += "\\t";
  } else if (c < 0x80) {
    out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
  } else {
    out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
  }
}

// Appends the character that starts at `position`; returns the number of bytes it has in `text`.
size_t append_character(std::string& out, std::string_view text, size_t position) {
  const CodePoint point = decode_utf8(text, position);
  if (point.bytes == 0) {
    out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[position]));
    return 1;
  }
  const size_t bytes = point.bytes;
  if (is_control(point.value))
    append_escaped(out, point.value);
  else
    out += text.substr(position, bytes);
  return bytes;
}

}  // namespace

std::string printable(std::string_view text, size_t most) {
  std::string out;
  size_t position = 0;
  for (size_t shown = 0; shown < most && position < text.size(); ++shown) position += append_character(out, text, position);
  if (position < text.size()) out += "...";
  return out;
}

std::string printable_lines(std::string_view text) {
  std::string out;
  for (size_t position = 0; position < text.size();) {
    if (text[position] == '\n') {
      out += text[position++];
    } else {
      position += append_character(out, text, position);
    }
  }
  return out;
}

}  // namespace trivet
