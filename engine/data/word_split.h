// Splits text into the words that byte-level BPE works on, as GPT-2's regular expression does:
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// The code is written by hand rather than with a regular-expression library, because the expression needs look-ahead and
// Unicode classes, and this little code covers it. Every byte is in exactly one word; a byte that is not UTF-8 counts as a
// symbol, so any input can be restored exactly.
#pragma once

#include <cstddef>
#include <string_view>

namespace trivet::data {

enum class CharacterClass { Letter, Number, Space, Symbol };
CharacterClass class_of(char32_t code_point);

// Bytes of the word that starts at `position` (which must be inside the text).
size_t word_bytes(std::string_view text, size_t position);

template <typename Visit>
void for_each_word(std::string_view text, Visit visit) {
  for (size_t position = 0; position < text.size();) {
    const size_t bytes = word_bytes(text, position);
    visit(text.substr(position, bytes));
    position += bytes;
  }
}

// Bytes of the longest piece of at most `limit` bytes after which a word begins, whatever follows, so that the pieces of a long
// text can be split into words one by one. Without such a place the piece is longer: it ends at the first such place after
// `limit`, or at the end of the text.
size_t piece_bytes(std::string_view text, size_t limit);

}  // namespace trivet::data
