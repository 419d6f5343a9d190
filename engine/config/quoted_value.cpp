#include "engine/config/quoted_value.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "engine/config/json_number.h"

namespace trivet::config {
namespace {

// The classes of DeepSpeed that are pydantic models.
constexpr std::array<std::string_view, 12> kLaxSections{"zero_optimization", "fp16",    "bf16",          "tensorboard",
                                                        "csv_monitor",       "wandb",   "comet",         "timers.throughput",
                                                        "comms_logger",      "compile", "hybrid_engine", "tensor_parallel"};

bool is_lax(const KeyEntry& entry) {
  return entry.origin != Origin::Own && std::ranges::any_of(kLaxSections, [&](std::string_view section) {
           return entry.path.starts_with(std::string(section) + ".");
         });
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string without_spaces_around(const std::string& text) {
  const char* const spaces = " \t\n\r";
  const size_t first = text.find_first_not_of(spaces);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(spaces) + 1 - first);
}

// A number as Python writes it, in JSON: "+1_000." is 1000. Empty if an underscore does not separate two digits.
std::string in_json(const std::string& text) {
  std::string number;
  size_t at = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  if (text.starts_with('-')) number = "-";
  const size_t start = number.size();
  for (; at < text.size(); ++at) {
    if (text[at] != '_') {
      number += text[at];
    } else if (at == 0 || at + 1 == text.size() || !is_digit(text[at - 1]) || !is_digit(text[at + 1])) {
      return "";
    }
  }
  while (number.size() > start + 1 && number[start] == '0' && is_digit(number[start + 1])) number.erase(start, 1);
  const size_t point = number.find('.');
  if (point == std::string::npos) return number;
  const bool before = point > start, after = point + 1 < number.size() && is_digit(number[point + 1]);
  if (!before && !after) return "";
  if (!after) number.insert(point + 1, "0");
  if (!before) number.insert(point, "0");
  return number;
}

std::optional<JsonNode> number_of(const KeyEntry& entry, const JsonNode& value) {
  const std::string text = in_json(without_spaces_around(value.text));
  const bool has_exponent = text.find_first_of("eE") != std::string::npos;
  JsonNode node;
  node.at = value.at;
  if (!read_number(text, node).empty()) return std::nullopt;
  if (entry.type == KeyType::Integer && (has_exponent || !node.is_integer)) return std::nullopt;
  return node;
}

std::optional<JsonNode> switch_of(const JsonNode& value) {
  constexpr std::array<std::string_view, 6> on{"true", "on", "yes", "t", "y", "1"}, off{"false", "off", "no", "f", "n", "0"};
  const std::string text = value.kind == JsonKind::Number ? (value.number == 1   ? "1"
                                                             : value.number == 0 ? "0"
                                                                                 : "")
                                                          : lower_case(value.text);
  const bool is_on = std::ranges::find(on, text) != on.end();
  if (!is_on && std::ranges::find(off, text) == off.end()) return std::nullopt;
  JsonNode node;
  node.kind = JsonKind::Bool;
  node.at = value.at;
  node.boolean = is_on;
  return node;
}

}  // namespace

std::optional<JsonNode> read_as_deepspeed(const KeyEntry& entry, const JsonNode& value) {
  if (!is_lax(entry)) return std::nullopt;
  const bool quoted = value.kind == JsonKind::String;
  if (entry.type == KeyType::Bool && (quoted || value.kind == JsonKind::Number)) return switch_of(value);
  if ((entry.type == KeyType::Integer || entry.type == KeyType::Number) && quoted) return number_of(entry, value);
  return std::nullopt;
}

}  // namespace trivet::config
