// Splits text into the words that byte-level BPE works on, as these regular expressions do:
//
//   GPT-2      's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   GPT-4      (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
//   ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//              (Llama 3's, too; Qwen's has \p{N} instead of \p{N}{1,3})
//   GPT-4o     words of letters and marks that end where an upper-case letter follows a lower-case one, with a contraction at
//              their end; otherwise as GPT-4, but words of symbols include slashes after the ends of lines
//              (kGpt4oPattern in tokenizers/pre_tokenizers.h)
//
// This code is written by hand because it is several times as fast as a regular-expression library, and splitting takes most of
// the time of encoding. Other expressions are matched by PCRE2 (tokenizers/pattern.h). Every byte is in exactly one word; a
// byte that is not UTF-8 counts as a symbol, so any input can be restored exactly.
#pragma once

#include <cstddef>
#include <string_view>

namespace trivet::data {

enum class CharacterClass { Letter, Number, Space, Symbol };
CharacterClass class_of(char32_t code_point);

// Bytes of the word that starts at `position` (which must be inside the text).
size_t word_bytes(std::string_view text, size_t position);
size_t word_bytes_as_gpt4(std::string_view text, size_t position, size_t most_digits);
size_t word_bytes_as_gpt4o(std::string_view text, size_t position);

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
// The same for the expressions of GPT-4 and GPT-4o, whose words of symbols include the ends of lines that follow.
size_t piece_bytes_to_space(std::string_view text, size_t limit);

}  // namespace trivet::data
