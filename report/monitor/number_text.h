// Formats numbers for people and for files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trivet::monitor {

std::string with_commas(int64_t value);           // 1234567 -> "1,234,567"
std::string duration(double seconds);             // 85 -> "1:25", 3725 -> "1:02:05", 90061 -> "1d 1:01:01"
std::string memory_size(int64_t bytes);           // "512 KiB", "17 MiB", "1.86 GiB"
std::string rate(double targets_per_second);      // "8,930"
std::string python_float(double value);           // as Python's str(float): "0.001", "1.0", "1e-05", "inf"
std::string json_number(double value);            // shortest that reads back equal; null when not finite
std::string with_capital(std::string_view word);  // "tokens" -> "Tokens"
std::string hexadecimal_bits(uint32_t bits);      // "3f800000"

}  // namespace trivet::monitor
