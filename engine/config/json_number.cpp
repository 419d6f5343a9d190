#include "engine/config/json_number.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "core/printable.h"

namespace trivet::config {
namespace {

bool is_number(const std::string& word) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t start = i;
    while (i < word.size() && word[i] >= '0' && word[i] <= '9') ++i;
    return i - start;
  };
  const auto accept = [&](char c) { return i < word.size() && word[i] == c ? ++i, true : false; };
  accept('-');
  const size_t start = i;
  const size_t integer_digits = digits();
  if (integer_digits == 0 || (integer_digits > 1 && word[start] == '0')) return false;
  if (accept('.') && digits() == 0) return false;
  if (accept('e') || accept('E')) {
    if (!accept('+')) accept('-');
    if (digits() == 0) return false;
  }
  return i == word.size();
}

// "9.223372e+18", as DeepSpeed writes the values of a config: exact, where a double is not. None: a fraction, or above 63 bits.
std::optional<int64_t> integer_of(const std::string& word) {
  const size_t exponent_at = word.find_first_of("eE");
  int exponent = 0;
  if (exponent_at != std::string::npos) {
    const size_t first = exponent_at + (word[exponent_at + 1] == '+' ? 2 : 1);
    if (std::from_chars(word.data() + first, word.data() + word.size(), exponent).ec != std::errc()) return std::nullopt;
  }
  std::string digits = word.substr(0, exponent_at);
  if (const size_t point = digits.find('.'); point != std::string::npos) {
    exponent -= static_cast<int>(digits.size() - point - 1);
    digits.erase(point, 1);
  }
  for (; exponent < 0 && digits.ends_with('0'); ++exponent) digits.pop_back();
  if (exponent < 0 || exponent > 18) return std::nullopt;
  digits.append(static_cast<size_t>(exponent), '0');
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc() && end == digits.data() + digits.size() ? std::optional(value) : std::nullopt;
}

}  // namespace

std::string read_number(const std::string& word, JsonNode& node) {
  for (const std::string_view python : {"Infinity", "-Infinity", "NaN"})
    if (word == python)
      return fmt::format(
          "{} is written by Python, but is no number of JSON; write one, such as 1000000000, or leave the key out", word);
  if (!is_number(word))
    return fmt::format("{} is not a JSON value; write a number, a string in double quotes, true, false or null",
                       printable(word, 60));
  node.kind = JsonKind::Number;
  node.text = word;
  const char* first = word.data();
  const char* last = first + word.size();
  if (std::from_chars(first, last, node.number).ec == std::errc::result_out_of_range) {
    const bool tiny = word.find("e-") != std::string::npos || word.find("E-") != std::string::npos;
    if (!tiny) return fmt::format("{} is too large for a number", printable(word, 60));
    node.number = 0;
  }
  if (word.find_first_of(".eE") == std::string::npos) {
    node.is_integer = std::from_chars(first, last, node.integer).ec == std::errc();
  } else if (const auto integer = integer_of(word)) {
    node.is_integer = true;
    node.integer = *integer;
  }
  return "";
}

}  // namespace trivet::config
