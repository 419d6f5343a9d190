// A model of sentencepiece (tokenizer.model): what its file says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trivet::data {

enum class PieceType { Normal = 1, Unknown = 2, Control = 3, UserDefined = 4, Unused = 5, Byte = 6 };

struct SentencePiece {
  std::string text;  // a space is written as U+2581
  float score = 0;
  PieceType type = PieceType::Normal;
};

struct SentencePieceFile {
  std::vector<SentencePiece> pieces;  // id -> piece
  bool bpe = false;                   // otherwise unigram
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  std::string unknown_surface = " \u2047 ";  // the text for the unknown piece
  std::string charsmap;                      // empty: text is not normalized
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
  int32_t unknown = -1;  // id of the only unknown piece
};

// Checks whether a file begins like a model of sentencepiece.
bool looks_like_sentencepiece(std::string_view bytes);

// Throws DataError naming `source` if the file is damaged or is a model of words or characters.
SentencePieceFile read_sentencepiece(std::string_view bytes, const std::string& source);

}  // namespace trivet::data
