// Properties of characters that tokenizers need, from utf8proc. A byte that is not UTF-8 (kNotUtf8) has no property.
//
// The library tokenizers uses tables of several ages, on which the ids of some rare code points depend: Unicode 8 for the
// categories in BERT's rules, Unicode 9 for normal forms and combining marks, Unicode 16 for regular expressions and lower
// case, Unicode 17 for numbers. So does this.
#pragma once

#include <string>
#include <string_view>

namespace trivet::data {

bool is_white_space(char32_t c);  // the property White_Space
bool is_number(char32_t c);       // N*
bool is_punctuation(char32_t c);  // P*, and the punctuation of ASCII, such as $ and ~
bool is_mark(char32_t c);         // M* in Unicode 9
bool is_nonspacing_mark(char32_t c);
bool is_other(char32_t c);      // control, format, surrogate, private use
bool is_word_char(char32_t c);  // \w of Rust: alphabetic, marks, decimal numbers, joiners, connectors such as _
bool is_ideograph(char32_t c);  // in the blocks that BERT calls Chinese characters

// The case of a letter in Unicode 16. Either: letters without a case (Lm, Lo) and marks (M*), which expressions like
// those of o200k_base accept among both.
enum class LetterCase : unsigned char { None, Upper, Lower, Either };
LetterCase letter_case(char32_t c);

void append_lower_case(std::string& text, char32_t c);

enum class NormalForm { NFC, NFD, NFKC, NFKD };
std::string normal_form(std::string_view text, NormalForm form);

// The end of the grapheme cluster that begins at `position`.
size_t grapheme_end(std::string_view text, size_t position);

}  // namespace trivet::data
