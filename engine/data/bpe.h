// Byte-level byte-pair encoding, as in GPT-2.
//
// Text is split into words (word_split.h), and each word starts as a sequence of bytes. As long as two neighbours have a merge,
// the pair with the earliest merge is joined, leftmost first. The parts that remain are the tokens. Every input can be encoded,
// and decoding restores its bytes.
#pragma once

#include <array>
#include <memory>
#include <unordered_map>
#include <utility>

#include "engine/data/tokenizer.h"

namespace trivet::data {

struct BpeVocabulary {
  std::vector<std::string> tokens;                  // id -> bytes
  std::vector<std::pair<int32_t, int32_t>> merges;  // ids of left and right, in order of rank
  std::vector<int32_t> special;                     // ids that no text encodes to, such as <|endoftext|>
};

class BpeTokenizer : public Tokenizer {
 public:
  // Throws DataError naming `source` when a byte has no token, or a merge produces something that is not a token.
  BpeTokenizer(BpeVocabulary vocabulary, const std::string& source);

  std::string name() const override { return "bpe"; }
  int64_t vocabulary_size() const override { return static_cast<int64_t>(vocabulary_.tokens.size()); }
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string to_text() const override;  // tokenizer.json

  const BpeVocabulary& vocabulary() const { return vocabulary_; }
  std::vector<int32_t> encode_word(std::string_view word) const;

 private:
  struct Merge {
    int32_t rank, result;
  };
  static uint64_t key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }

  BpeVocabulary vocabulary_;
  std::array<int32_t, 256> id_of_byte_{};
  std::unordered_map<uint64_t, Merge> merges_;
};

// Ids follow GPT-2: the 256 bytes in the order of the byte alphabet, then the result of each merge (unless it already has an
// id), then <|endoftext|>.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";
BpeVocabulary vocabulary_of_merges(const std::vector<std::pair<std::string, std::string>>& merges, const std::string& source);

}  // namespace trivet::data
