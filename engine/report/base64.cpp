#include "engine/report/base64.h"

#include <algorithm>
#include <cstdint>

namespace trivet::report {

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
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

}  // namespace trivet::report
