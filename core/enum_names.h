// Strings at the edge, enums inside: one table per enum serves the parser, the error text, the writer and the docs.
//
//   template <> struct EnumNames<Color> {
//     static constexpr std::array<std::pair<std::string_view, Color>, 2> table{{{"red", Color::Red}, {"blue", Color::Blue}}};
//   };
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace trivet {

template <typename Enum>
struct EnumNames;

// All values, in the order of the table.
template <typename Enum>
constexpr auto all_values() {
  std::array<Enum, EnumNames<Enum>::table.size()> values{};
  for (size_t i = 0; i < values.size(); ++i) values[i] = EnumNames<Enum>::table[i].second;
  return values;
}

template <typename Enum>
constexpr std::string_view name_of(Enum value) {
  for (const auto& [name, entry] : EnumNames<Enum>::table)
    if (entry == value) return name;
  return "?";
}

template <typename Enum>
constexpr std::optional<Enum> from_name(std::string_view name) {
  for (const auto& [known, value] : EnumNames<Enum>::table)
    if (known == name) return value;
  return std::nullopt;
}

// The list of accepted names for an error message: "a", "b", "c".
template <typename Enum>
std::string accepted_names() {
  std::string text;
  for (const auto& [name, value] : EnumNames<Enum>::table) {
    if (!text.empty()) text += ", ";
    text.append("\"").append(name).append("\"");
  }
  return text;
}

}  // namespace trivet
