// A tokenizer that is composed of the parts which a tokenizer.json describes (component.h).
//
//   text --added tokens--> rest --normalizer--> --added tokens--> rest --pre-tokenizer--> words --model--> ids
//
// Anything in the file that this code does not know is refused when the file is read, so a tokenizer never encodes
// almost as its own program does.
#pragma once

#include <map>
#include <memory>

#include "data/tokenizer.h"
#include "data/tokenizers/added_tokens.h"
#include "data/tokenizers/component.h"
#include "data/tokenizers/word_cache.h"

namespace trivet::data {

struct Composition {
  std::string text;                        // the file
  std::vector<std::string> tokens;         // id -> token as the file writes it; "" where an id has none
  std::vector<bool> special;               // for each id
  AddedTokens added_before, added_after;   // recognized in the text, and in the normalized text
  std::unique_ptr<Normalizer> normalizer;  // null: none
  std::unique_ptr<PreTokenizer> splitter;  // null: none
  std::unique_ptr<WordModel> model;
  std::unique_ptr<Decoder> decoder;  // null: tokens are joined with spaces
  SpecialFrame frame;
  bool byte_level = false;  // any bytes are accepted, not only UTF-8
};

class ComposedTokenizer final : public Tokenizer {
 public:
  explicit ComposedTokenizer(Composition parts);

  std::string name() const override { return parts_.model->name(); }
  int64_t vocabulary_size() const override { return static_cast<int64_t>(parts_.tokens.size()); }
  std::vector<int32_t> encode(std::string_view text) const override { return encode_part(text, {}); }
  std::vector<int32_t> encode_with_special(std::string_view text) const override {
    return encode_part(text, {.special = true});
  }
  std::vector<int32_t> encode_part(std::string_view text, const TextToEncode& how) const override;
  bool names_in_byte_alphabet() const override { return parts_.byte_level; }
  std::string decode(std::span<const int32_t> ids) const override;
  std::string to_text() const override { return parts_.text; }
  int32_t special_id(std::string_view content) const override;
  SpecialFrame frame() const override { return parts_.frame; }
  std::string token_name(int32_t id) const override { return Tokenizer::has_token(id) ? parts_.tokens[id] : ""; }
  bool has_token(int32_t id) const override { return !token_name(id).empty(); }
  size_t piece_bytes(std::string_view text, size_t limit) const override;

 private:
  void encode_rest(TextPiece rest, SpecialTokens special, WordCache& cache, std::vector<int32_t>& ids) const;
  void encode_normalized(TextPiece piece, WordCache& cache, std::vector<int32_t>& ids) const;
  void encode_word(std::string_view word, WordCache& cache, std::vector<int32_t>& ids) const;

  Composition parts_;
  std::map<std::string, int32_t, std::less<>> special_ids_;
  mutable WordCaches caches_;
};

}  // namespace trivet::data
