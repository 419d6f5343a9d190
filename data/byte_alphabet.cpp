#include "data/byte_alphabet.h"

#include <algorithm>

#include "core/utf8.h"

namespace trivet::data {
namespace {

constexpr bool stands_for_itself(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173); }

constexpr std::array<char32_t, 256> make_characters() {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) characters[byte] = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
  return characters;
}

constexpr std::array<uint8_t, 256> make_order() {
  std::array<uint8_t, 256> order{};
  size_t next = 0;
  for (const bool first : {true, false})
    for (int byte = 0; byte < 256; ++byte)
      if (stands_for_itself(byte) == first) order[next++] = static_cast<uint8_t>(byte);
  return order;
}

constexpr std::array<char32_t, 256> kCharacters = make_characters();
constexpr std::array<uint8_t, 256> kOrder = make_order();

}  // namespace

const std::array<uint8_t, 256>& bytes_by_id() { return kOrder; }

std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  for (char byte : bytes) append_utf8(text, kCharacters[static_cast<uint8_t>(byte)]);
  return text;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string bytes;
  for (size_t position = 0; position < text.size();) {
    const CodePoint point = decode_utf8(text, position);
    const auto found = std::find(kCharacters.begin(), kCharacters.end(), point.value);
    if (point.bytes == 0 || found == kCharacters.end()) return std::nullopt;
    bytes += static_cast<char>(found - kCharacters.begin());
    position += point.bytes;
  }
  return bytes;
}

}  // namespace trivet::data
