// Turns text into token ids and token ids into text.
//
//   bytes        a token is a byte; 256 ids, any input is valid
//   characters   a token is a UTF-8 code point of the training text; ids in code point order
//   BPE          byte-level byte-pair encoding, as in GPT-2 (bpe.h)
//
// Immutable, so that any number of threads may use one. A tokenizer is saved as text: bytes and characters as a short JSON
// object in Trivet's own format, BPE as a tokenizer.json that other programs read too. load_tokenizer also reads vocab.bpe /
// merges.txt, .tiktoken, and the tokenizer inside a token file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trivet::data {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string name() const = 0;  // "bytes", "characters", "bpe"
  virtual int64_t vocabulary_size() const = 0;
  // Throws DataError naming the character and its byte position if a character of the text has no id.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // The inverse. An id outside the vocabulary is an error.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  virtual std::string to_text() const = 0;
};

std::shared_ptr<Tokenizer> bytes_tokenizer();
std::shared_ptr<Tokenizer> characters_tokenizer(std::string_view training_text);

std::shared_ptr<Tokenizer> load_tokenizer(const std::string& path);
// `source` names the file in messages.
std::shared_ptr<Tokenizer> tokenizer_from_text(const std::string& text, const std::string& source);

}  // namespace trivet::data
