// Walks over the code points of a text.
#pragma once

#include <string>
#include <string_view>

#include "core/utf8.h"

namespace trivet::data {

inline constexpr char32_t kNotUtf8 = 0x110000;  // stands for a byte that is not UTF-8

// The code point at `position`; a byte that is not UTF-8 counts as one of its own, kNotUtf8.
inline CodePoint code_point_at(std::string_view text, size_t position) {
  const auto byte = static_cast<unsigned char>(text[position]);
  if (byte < 0x80) return {byte, 1};
  const CodePoint point = decode_utf8(text, position);
  return point.bytes == 0 ? CodePoint{kNotUtf8, 1} : point;
}

// Calls visit(code point, its bytes).
template <typename Visit>
void for_each_code_point(std::string_view text, Visit visit) {
  for (size_t position = 0; position < text.size();) {
    const CodePoint point = code_point_at(text, position);
    visit(point.value, text.substr(position, static_cast<size_t>(point.bytes)));
    position += static_cast<size_t>(point.bytes);
  }
}

}  // namespace trivet::data
