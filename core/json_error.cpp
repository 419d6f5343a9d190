#include "core/json_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/printable.h"

namespace trivet {
namespace {

constexpr size_t kMostShown = 20;

// Returns the text after the mark in the text of an error, up to the next quote.
std::string_view quoted_after(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + mark.size());
  return text.substr(0, text.find('\''));
}

// "line 2, column 5", both counted from 1, in bytes; "column 5" of what is a single line.
std::string place_in_words(std::string_view text, size_t at) {
  if (text.empty() || text.find('\n') >= text.size() - 1) return fmt::format("column {}", at + 1);
  const std::string_view before = text.substr(0, at);
  const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("line {}, column {}", 1 + std::ranges::count(before, '\n'), at - line_start + 1);
}

struct Word {
  std::string_view word, advice;
};

// Words that other languages and other writers of JSON have in the place of a value.
constexpr std::array kWords{Word{"NaN", "is no number of JSON; write null, or leave the key out"},
                            Word{"nan", "is no number of JSON; write null, or leave the key out"},
                            Word{"-Infinity", "is no number of JSON; write null, or leave the key out"},
                            Word{"Infinity", "is no number of JSON; write null, or leave the key out"},
                            Word{"-inf", "is no number of JSON; write null, or leave the key out"},
                            Word{"inf", "is no number of JSON; write null, or leave the key out"},
                            Word{"undefined", "is no value of JSON; write null, or leave the key out"},
                            Word{"None", "is Python's; JSON has null"},
                            Word{"True", "is Python's; JSON has true"},
                            Word{"False", "is Python's; JSON has false"},
                            Word{"'", "begins no string of JSON; use double quotes"},
                            Word{"//", "begins a comment, which JSON does not have; remove it"},
                            Word{"/*", "begins a comment, which JSON does not have; remove it"},
                            Word{"#", "begins a comment, which JSON does not have; remove it"}};

// The reader stops at the first byte that does not fit, which may be in the middle of the word.
std::string about_word(std::string_view text, size_t at) {
  for (const Word& one : kWords)
    for (size_t back = 0; back < one.word.size() && back <= at; ++back)
      if (text.substr(at - back).starts_with(one.word))
        return fmt::format("{} has {}, which {}", place_in_words(text, at - back), one.word, one.advice);
  return "";
}

std::string about_string(std::string_view text, size_t at, std::string_view reason) {
  const std::string place = place_in_words(text, at);
  if (reason.find("surrogate") != std::string_view::npos)
    return place + " has half of a character: \\ud800 to \\udbff and \\udc00 to \\udfff stand only in pairs";
  if (reason.find("control character") != std::string_view::npos)
    return place + " has a line break or another control character in a string; write it as an escape, such as \\n or \\t";
  if (reason.find("forbidden character after backslash") != std::string_view::npos)
    return place + " has a backslash that begins no escape of JSON; write it as \\\\";
  if (reason.find("UTF-8") != std::string_view::npos)
    return place + " has a string that is not UTF-8; convert the file to UTF-8";
  return "";
}

std::string about_malformed(std::string_view text, size_t byte, std::string_view reason) {
  const size_t at = byte > 0 ? byte - 1 : 0;
  if (at >= text.size() || reason.find("missing closing quote") != std::string_view::npos)
    return fmt::format("it ends at {} in the middle of a value; it may be truncated", place_in_words(text, text.size()));
  if (std::string in_string = about_string(text, at, reason); !in_string.empty()) return in_string;
  if (std::string word = about_word(text, at); !word.empty()) return word;
  const std::string shown = printable(text.substr(at, kMostShown));
  if (reason.find("expected end of input") != std::string_view::npos)
    return fmt::format("{} has \"{}\" after the end of the value", place_in_words(text, at), shown);
  return fmt::format("{} has \"{}\" where something else was expected", place_in_words(text, at), shown);
}

// The reason without the code in front: "[json.exception.type_error.302] ".
std::string_view without_code(std::string_view reason) {
  const size_t end = reason.starts_with('[') ? reason.find("] ") : std::string_view::npos;
  return end == std::string_view::npos ? reason : reason.substr(end + 2);
}

}  // namespace

std::string json_error_in_words(std::string_view text, const std::exception& error) {
  const std::string_view reason = without_code(error.what());
  if (const auto* malformed = dynamic_cast<const nlohmann::json::parse_error*>(&error))
    return about_malformed(text, malformed->byte, reason);
  if (const std::string_view number = quoted_after(reason, "overflow parsing '"); !number.empty())
    return fmt::format("the number {} is too large; 1.8e308 is the largest", printable(number, kMostShown));
  if (const std::string_view key = quoted_after(reason, "key '"); !key.empty())
    return fmt::format("the key \"{}\" is missing", printable(key, 40));
  if (reason.starts_with("type must be ")) return fmt::format("the type of a value {}", reason.substr(sizeof "type " - 1));
  return printable(reason);
}

}  // namespace trivet
