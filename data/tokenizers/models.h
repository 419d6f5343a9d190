// Turns words into ids (the "model" of a tokenizer.json).
//
//   BPE         a word begins as characters, or as bytes; neighbours are joined as the merges say (merges.h)
//   Unigram     the way to split a word into tokens whose probabilities have the largest product
//   WordPiece   the longest token with which the rest of the word begins, again and again
#pragma once

#include <array>

#include "data/tokenizers/byte_trie.h"
#include "data/tokenizers/component.h"
#include "data/tokenizers/joined_characters.h"
#include "data/tokenizers/merges.h"
#include "data/tokenizers/vocabulary.h"

namespace trivet::data {

// The tokens "<0x00>" to "<0xFF>", with which some vocabularies write characters that they do not have.
class ByteTokens {
 public:
  explicit ByteTokens(const TokenIds& ids);
  bool has_all() const;
  // Appends the bytes of a text; appends nothing, and returns false, if one of them has no token.
  bool append(std::string_view text, std::vector<int32_t>& ids) const;

 private:
  std::array<int32_t, 256> ids_{};  // -1: none
};

struct BpeOptions {
  TokenIds ids;
  MergeTable merges = MergeTable(0);
  bool byte_level = false;         // a word begins as bytes
  std::string end_of_word = "";    // the last symbol of a word has this suffix in the vocabulary, for example "</w>"
  int32_t unknown = -1;            // the id for a character without one; -1: it is left out
  bool fuse_unknown = false;       // several in a row become one
  bool byte_fallback = false;      // such a character becomes its bytes instead
  bool whole_words_first = false;  // a word that is a token is not split ("ignore_merges")
};
std::unique_ptr<WordModel> make_bpe_model(BpeOptions options);

struct UnigramOptions {
  TokenIds ids;
  std::vector<double> scores;  // for each id: logarithms of probabilities
  int32_t unknown = 0;
  bool byte_fallback = false;
};
std::unique_ptr<WordModel> make_unigram_model(UnigramOptions options);

struct WordPieceOptions {
  TokenIds ids;
  int32_t unknown = 0;            // the id for a word that cannot be split
  std::string prefix = "##";      // begins tokens within a word
  int64_t most_characters = 100;  // a longer word is unknown
};
std::unique_ptr<WordModel> make_word_piece_model(WordPieceOptions options);

}  // namespace trivet::data
