// The parts of which a tokenizer of another program is composed, in the order in which text goes through them.
//
//   text -> Normalizer -> PreTokenizer -> WordModel -> ids          ids -> tokens -> Decoder -> text
//
// Names and rules are those of Hugging Face's library tokenizers, whose files (tokenizer.json) list such parts; a model of
// sentencepiece becomes parts of the same kinds. All are immutable and may be used by several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trivet::data {

// Rewrites text before it is split: Unicode normal forms, lower case, replacements.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string normalize(std::string text) const = 0;
};

// A part of the text. `first`: it begins where the whole text begins, which some rules treat differently.
struct TextPiece {
  std::string_view text;
  bool first = false;
};
// The piece is valid only during the call.
using PieceVisitor = std::function<void(TextPiece)>;

// Splits text into the words that the model encodes one by one, and may rewrite it.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void split(TextPiece piece, const PieceVisitor& visit) const = 0;
  // Bytes of a piece at the beginning of a long text that is split into the same words by itself, as its rest is: about
  // `limit`, or as many as it takes.
  virtual size_t piece_bytes(std::string_view text, size_t /*limit*/) const { return text.size(); }
};

// Encodes a word.
class WordModel {
 public:
  virtual ~WordModel() = default;
  virtual std::string name() const = 0;  // "bpe", "unigram", "wordpiece"
  virtual void encode(std::string_view word, std::vector<int32_t>& ids) const = 0;
  // Calls `visit` for parts of a long word that can be encoded one by one with the same result.
  virtual void for_each_part(std::string_view word, const std::function<void(std::string_view)>& visit) const { visit(word); }
};

// Rewrites the tokens of a text, in order, before they are joined.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void decode(std::vector<std::string>& tokens) const = 0;
};

}  // namespace trivet::data
