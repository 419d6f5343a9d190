#include "report/monitor/number_text.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>

namespace trivet::monitor {

std::string with_commas(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t first = digits[0] == '-' ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string duration(double seconds) {
  const auto all = static_cast<int64_t>(std::llround(std::fmax(0.0, seconds)));
  const int64_t days = all / 86400, hours = all / 3600 % 24, minutes = all / 60 % 60, rest = all % 60;
  if (days > 0) return fmt::format("{}d {}:{:02}:{:02}", days, hours, minutes, rest);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, rest);
  return fmt::format("{}:{:02}", minutes, rest);
}

std::string memory_size(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value < 0x1p20) return fmt::format("{:.0f} KiB", value / 0x1p10);
  if (value < 0x1p30) return fmt::format("{:.0f} MiB", value / 0x1p20);
  return fmt::format("{:.2f} GiB", value / 0x1p30);
}

std::string rate(double targets_per_second) {
  if (!std::isfinite(targets_per_second)) return "-";
  return with_commas(std::llround(targets_per_second));
}

std::string python_float(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string json_number(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

std::string with_capital(std::string_view word) {
  std::string text(word);
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

std::string hexadecimal_bits(uint32_t bits) { return fmt::format("{:08x}", bits); }

}  // namespace trivet::monitor
