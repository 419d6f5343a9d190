#include "report/base64.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>

namespace trivet::report {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {  // 3 bytes are 4 digits of 6 bits
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) bits = bits << 8 | (i < count ? static_cast<uint8_t>(bytes[at + i]) : 0u);
    for (size_t digit = 0; digit < 4; ++digit) text += digit <= count ? kDigits[bits >> (18 - 6 * digit) & 63] : '=';
  }
  return text;
}

std::string from_base64(std::string_view text) {
  const auto refuse = [] { throw std::invalid_argument("is not text in base64"); };
  if (text.size() % 4 != 0) refuse();
  std::string bytes;
  while (!text.empty()) {
    const bool last = text.size() == 4;
    const size_t digits = std::min<size_t>(4, last ? text.find('=') : 4);
    if (digits < 2 || text.substr(digits, 4 - digits) != std::string_view("==").substr(0, 4 - digits)) refuse();
    uint32_t bits = 0;
    for (size_t digit = 0; digit < 4; ++digit) {
      const size_t value = digit < digits ? kDigits.find(text[digit]) : 0;
      if (value == std::string_view::npos) refuse();
      bits = bits << 6 | static_cast<uint32_t>(value);
    }
    for (size_t i = 0; i + 1 < digits; ++i) bytes += static_cast<char>(bits >> (16 - 8 * i) & 0xff);
    text.remove_prefix(4);
  }
  return bytes;
}

}  // namespace trivet::report
