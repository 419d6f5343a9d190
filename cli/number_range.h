// A range of numbers for an option. Needed because every range of CLI11 accepts NaN.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <string>

namespace trivet::cli {

// Returns a check for CLI::Option::check: it accepts a number from `least` to `most`.
inline std::function<std::string(const std::string&)> number_from_to(double least, double most) {
  return [least, most](const std::string& text) -> std::string {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    if (is_number && value >= least && value <= most) return "";
    return fmt::format("{} is not accepted; use {} to {}", text, least, most);
  };
}

}  // namespace trivet::cli
