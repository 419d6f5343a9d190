#include "data/word_split.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/utf8.h"
#include "data/tokenizers/unicode.h"
#include "data/unicode_tables.h"

namespace trivet::data {
namespace {

// \s = White_Space
constexpr std::array<CodePointRange, 10> kSpaces{{{0x9, 0xD},
                                                  {0x20, 0x20},
                                                  {0x85, 0x85},
                                                  {0xA0, 0xA0},
                                                  {0x1680, 0x1680},
                                                  {0x2000, 0x200A},
                                                  {0x2028, 0x2029},
                                                  {0x202F, 0x202F},
                                                  {0x205F, 0x205F},
                                                  {0x3000, 0x3000}}};

constexpr size_t kInTable = 0x20000;  // the basic plane, and the next with most of the rest that is written

bool contains(std::span<const CodePointRange> ranges, char32_t c) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), c,
                                      [](char32_t value, const CodePointRange& range) { return value < range.first; });
  return after != ranges.begin() && c <= (after - 1)->last;
}

void fill(std::vector<CharacterClass>& table, std::span<const CodePointRange> ranges, CharacterClass kind) {
  for (const CodePointRange& range : ranges)
    for (char32_t c = range.first; c <= range.last && c < table.size(); ++c) table[c] = kind;
}

std::vector<CharacterClass> make_table() {
  std::vector<CharacterClass> table(kInTable, CharacterClass::Symbol);
  fill(table, letter_ranges(), CharacterClass::Letter);
  fill(table, number_ranges(), CharacterClass::Number);
  fill(table, kSpaces, CharacterClass::Space);
  return table;
}

struct Character {
  CharacterClass kind;
  size_t bytes;
};

Character character_at(std::string_view text, size_t position) {
  const CodePoint point = decode_utf8(text, position);
  if (point.bytes == 0) return {CharacterClass::Symbol, 1};
  return {class_of(point.value), static_cast<size_t>(point.bytes)};
}

// 's 't 're 've 'm 'll 'd
size_t contraction_bytes(std::string_view rest) {
  for (const std::string_view contraction : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (rest.starts_with(contraction)) return contraction.size();
  return 0;
}

// End of the run of one class that begins at `position`.
size_t run_end(std::string_view text, size_t position, CharacterClass kind) {
  while (position < text.size()) {
    const Character next = character_at(text, position);
    if (next.kind != kind) break;
    position += next.bytes;
  }
  return position;
}

// \s+(?!\S)|\s+ : the last space of a run belongs to the word that follows, unless it is the only space.
size_t space_bytes(std::string_view text, size_t position) {
  size_t end = position, last_bytes = 0;
  while (end < text.size()) {
    const Character next = character_at(text, end);
    if (next.kind != CharacterClass::Space) break;
    end += next.bytes, last_bytes = next.bytes;
  }
  const bool only_one = end - position == last_bytes;
  return end == text.size() || only_one ? end - position : end - position - last_bytes;
}

// Does the same in any case. The long s is an s in another case.
size_t contraction_bytes_in_any_case(std::string_view rest) {
  if (rest.starts_with("'\u017F")) return 3;
  std::string start(rest.substr(0, 3));
  for (char& c : start)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return contraction_bytes(start);
}

bool is_line_break(char c) { return c == '\n' || c == '\r'; }

size_t number_bytes(std::string_view text, size_t position, size_t most_digits) {
  size_t end = position;
  for (size_t digits = 0; digits < most_digits && end < text.size(); ++digits) {
    const Character next = character_at(text, end);
    if (next.kind != CharacterClass::Number) break;
    end += next.bytes;
  }
  return end - position;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ : a run of spaces up to its last line break, if it has one.
size_t space_or_lines_bytes(std::string_view text, size_t position) {
  size_t after_break = 0;
  for (size_t end = position; end < text.size();) {
    const Character next = character_at(text, end);
    if (next.kind != CharacterClass::Space) break;
    if (is_line_break(text[end])) after_break = end + 1;
    end += next.bytes;
  }
  return after_break > 0 ? after_break - position : space_bytes(text, position);
}

}  // namespace

CharacterClass class_of(char32_t code_point) {
  static const std::vector<CharacterClass> table = make_table();
  if (code_point < kInTable) return table[code_point];
  if (contains(letter_ranges(), code_point)) return CharacterClass::Letter;
  return contains(number_ranges(), code_point) ? CharacterClass::Number : CharacterClass::Symbol;
}

size_t word_bytes(std::string_view text, size_t position) {
  if (const size_t bytes = contraction_bytes(text.substr(position))) return bytes;
  const size_t start = position + (text[position] == ' ' && position + 1 < text.size() ? 1 : 0);
  const Character first = character_at(text, start);
  if (first.kind == CharacterClass::Space) return space_bytes(text, position);
  return run_end(text, start, first.kind) - position;
}

size_t word_bytes_as_gpt4(std::string_view text, size_t position, size_t most_digits) {
  const Character first = character_at(text, position);
  if (first.kind == CharacterClass::Letter) return run_end(text, position, CharacterClass::Letter) - position;
  if (text[position] == '\'')
    if (const size_t bytes = contraction_bytes_in_any_case(text.substr(position))) return bytes;
  if (first.kind == CharacterClass::Number) return number_bytes(text, position, most_digits);
  const size_t second = position + first.bytes;
  const bool has_second = second < text.size();
  if (has_second && !is_line_break(text[position]) && character_at(text, second).kind == CharacterClass::Letter)
    return run_end(text, second, CharacterClass::Letter) - position;
  const size_t symbols = text[position] == ' ' && has_second ? second : position;
  size_t end = run_end(text, symbols, CharacterClass::Symbol);
  if (end == symbols) return space_or_lines_bytes(text, position);
  while (end < text.size() && is_line_break(text[end])) ++end;
  return end - position;
}

namespace {

LetterCase case_at(std::string_view text, size_t position, size_t& bytes) {
  static const std::vector<LetterCase> table = [] {
    std::vector<LetterCase> cases(kInTable);
    for (char32_t c = 0; c < kInTable; ++c) cases[c] = letter_case(c);
    return cases;
  }();
  const CodePoint point = decode_utf8(text, position);
  bytes = point.bytes;
  if (point.bytes == 0) return LetterCase::None;
  return point.value < kInTable ? table[point.value] : letter_case(point.value);
}

// End of what [upper either]* [lower either]+ matches from `position`, or else [upper either]+ [lower either]*; `position` if
// neither does.
size_t cased_word_end(std::string_view text, size_t position) {
  size_t end = position, after_either = position, bytes = 0;
  LetterCase next = LetterCase::None;
  for (; end < text.size(); end += bytes) {
    next = case_at(text, end, bytes);
    if (next != LetterCase::Upper && next != LetterCase::Either) break;
    if (next == LetterCase::Either) after_either = end + bytes;
  }
  // Without a lower-case letter after them, the first expression gives back the upper-case letters at the end.
  if (end == text.size() || next != LetterCase::Lower) return after_either > position ? after_either : end;
  for (; end < text.size(); end += bytes) {
    next = case_at(text, end, bytes);
    if (next != LetterCase::Lower && next != LetterCase::Either) break;
  }
  return end;
}

}  // namespace

size_t word_bytes_as_gpt4o(std::string_view text, size_t position) {
  const Character first = character_at(text, position);
  if (first.kind == CharacterClass::Number) return number_bytes(text, position, 3);
  size_t end = cased_word_end(text, position);
  const size_t second = position + first.bytes;
  const bool has_second = second < text.size();
  if (end == position && has_second && !is_line_break(text[position])) {  // one character that is no letter may come first
    const size_t end_from_second = cased_word_end(text, second);
    if (end_from_second > second) end = end_from_second;
  }
  if (end > position) return end + contraction_bytes_in_any_case(text.substr(end)) - position;
  const size_t symbols = text[position] == ' ' && has_second ? second : position;
  end = run_end(text, symbols, CharacterClass::Symbol);
  if (end == symbols) return space_or_lines_bytes(text, position);
  while (end < text.size() && (is_line_break(text[end]) || text[end] == '/')) ++end;
  return end - position;
}

namespace {

// `spaces` are those of ASCII, which end a word after visible ASCII.
size_t piece_bytes_to(std::string_view spaces, std::string_view text, size_t limit) {
  if (text.size() <= limit) return text.size();
  const auto ends_word = [&](size_t at) {
    return spaces.find(text[at]) != std::string_view::npos && text[at - 1] > ' ' && text[at - 1] < 0x7F;
  };
  for (size_t at = limit; at > 0; --at)
    if (ends_word(at)) return at;
  for (size_t at = limit + 1; at < text.size(); ++at)
    if (ends_word(at)) return at;
  return text.size();
}

}  // namespace

size_t piece_bytes(std::string_view text, size_t limit) { return piece_bytes_to(" \n", text, limit); }
size_t piece_bytes_to_space(std::string_view text, size_t limit) { return piece_bytes_to(" ", text, limit); }

}  // namespace trivet::data
