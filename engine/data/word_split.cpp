#include "engine/data/word_split.h"

#include <algorithm>
#include <array>

#include "core/utf8.h"
#include "engine/data/unicode_tables.h"

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

bool contains(std::span<const CodePointRange> ranges, char32_t c) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), c,
                                      [](char32_t value, const CodePointRange& range) { return value < range.first; });
  return after != ranges.begin() && c <= (after - 1)->last;
}

CharacterClass look_up(char32_t c) {
  if (contains(kSpaces, c)) return CharacterClass::Space;
  if (contains(letter_ranges(), c)) return CharacterClass::Letter;
  return contains(number_ranges(), c) ? CharacterClass::Number : CharacterClass::Symbol;
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

}  // namespace

CharacterClass class_of(char32_t code_point) {
  static const auto ascii = [] {
    std::array<CharacterClass, 128> table{};
    for (char32_t c = 0; c < 128; ++c) table[c] = look_up(c);
    return table;
  }();
  return code_point < 128 ? ascii[code_point] : look_up(code_point);
}

size_t word_bytes(std::string_view text, size_t position) {
  if (const size_t bytes = contraction_bytes(text.substr(position))) return bytes;
  const size_t start = position + (text[position] == ' ' && position + 1 < text.size() ? 1 : 0);
  const Character first = character_at(text, start);
  if (first.kind == CharacterClass::Space) return space_bytes(text, position);
  return run_end(text, start, first.kind) - position;
}

size_t piece_bytes(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text.size();
  const auto ends_word = [&](size_t at) {  // ASCII white space after visible ASCII
    return (text[at] == ' ' || text[at] == '\n') && text[at - 1] > ' ' && text[at - 1] < 0x7F;
  };
  for (size_t at = limit; at > 0; --at)
    if (ends_word(at)) return at;
  for (size_t at = limit + 1; at < text.size(); ++at)
    if (ends_word(at)) return at;
  return text.size();
}

}  // namespace trivet::data
