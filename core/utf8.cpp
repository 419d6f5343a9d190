#include "core/utf8.h"

#include <fmt/format.h>

namespace trivet {
namespace {

bool is_continuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

// Length that the first byte announces; 0 for a byte that cannot start a code point.
int announced_length(uint8_t first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  if (first >= 0xF0 && first <= 0xF4) return 4;
  return 0;
}

}  // namespace

CodePoint decode_utf8(std::string_view text, size_t position) {
  const auto first = static_cast<uint8_t>(text[position]);
  const int length = announced_length(first);
  if (length == 1) return {first, 1};
  if (length == 0 || position + length > text.size()) return {};
  char32_t value = first & (0xFF >> (length + 1));
  for (int i = 1; i < length; ++i) {
    const char next = text[position + i];
    if (!is_continuation(next)) return {};
    value = (value << 6) | (static_cast<uint8_t>(next) & 0x3F);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (overlong || surrogate || value > 0x10FFFF) return {};
  return {value, length};
}

void append_utf8(std::string& text, char32_t c) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += static_cast<char>(0xC0 | (c >> 6)), tail(0);
  } else if (c < 0x10000) {
    text += static_cast<char>(0xE0 | (c >> 12)), tail(6), tail(0);
  } else {
    text += static_cast<char>(0xF0 | (c >> 18)), tail(12), tail(6), tail(0);
  }
}

bool is_utf8(std::string_view text) {
  for (size_t position = 0; position < text.size();) {
    const CodePoint point = decode_utf8(text, position);
    if (point.bytes == 0) return false;
    position += point.bytes;
  }
  return true;
}

std::string describe_code_point(char32_t code_point) {
  const std::string number = fmt::format("U+{:04X}", static_cast<uint32_t>(code_point));
  if (code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0)) return number;
  std::string text;
  append_utf8(text, code_point);
  return "\"" + text + "\" (" + number + ")";
}

}  // namespace trivet
