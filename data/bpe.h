// Byte-level byte-pair encoding, as in GPT-2: the kind that Trivet trains, and that .tiktoken files hold.
//
// Text is split into words by a regular expression, and each word starts as a sequence of bytes, which are joined as the merges
// say (tokenizers/merges.h). The parts that remain are the tokens. Every input can be encoded, and decoding restores its bytes.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "data/tokenizer.h"
#include "data/tokenizers/added_tokens.h"
#include "data/tokenizers/merges.h"
#include "data/tokenizers/pre_tokenizers.h"
#include "data/tokenizers/word_cache.h"

namespace trivet::data {

struct BpeVocabulary {
  std::vector<std::string> tokens;                  // id -> bytes
  std::vector<std::pair<int32_t, int32_t>> merges;  // ids of left and right, in order of rank
  std::vector<int32_t> special;                     // ids of special tokens, such as <|endoftext|>
  std::string pattern = kGpt2Pattern;               // the regular expression that splits text into words
  bool whole_words_first = false;                   // a word that is a token is not made by merges
};

class BpeTokenizer : public Tokenizer {
 public:
  // Throws DataError naming `source` when a byte has no token, or a merge produces something that is not a token.
  BpeTokenizer(BpeVocabulary vocabulary, const std::string& source);

  std::string name() const override { return "bpe"; }
  int64_t vocabulary_size() const override { return static_cast<int64_t>(vocabulary_.tokens.size()); }
  std::vector<int32_t> encode(std::string_view text) const override;
  std::vector<int32_t> encode_with_special(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string to_text() const override;  // tokenizer.json
  int32_t special_id(std::string_view name) const override;
  std::string token_name(int32_t id) const override { return has_token(id) ? vocabulary_.tokens[id] : ""; }
  size_t piece_bytes(std::string_view text, size_t limit) const override;

  const BpeVocabulary& vocabulary() const { return vocabulary_; }
  std::vector<int32_t> encode_word(std::string_view word) const;

 private:
  void append(std::string_view text, std::vector<int32_t>& ids) const;

  BpeVocabulary vocabulary_;
  std::array<int32_t, 256> id_of_byte_{};
  MergeTable merges_;
  std::unordered_map<std::string_view, int32_t> whole_words_;  // empty unless they come first
  std::unique_ptr<PreTokenizer> words_;
  AddedTokens special_;
  mutable WordCaches caches_;
};

// Ids follow GPT-2: the 256 bytes in the order of the byte alphabet, then the result of each merge (unless it already has an
// id), then <|endoftext|>.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";
BpeVocabulary vocabulary_of_merges(const std::vector<std::pair<std::string, std::string>>& merges, const std::string& source);

}  // namespace trivet::data
