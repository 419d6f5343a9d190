// Files of token ids: our own, and two that others write.
//
// Our own (.tokens; little-endian; docs/data.md has the table of offsets) is a header of 128 bytes, the text of the tokenizer
// that made it, zeros up to a multiple of 64, and the ids back to back. It is complete in itself: the tokenizer travels with
// the data. The header carries a checksum of itself, of the tokenizer and of the ids; opening checks the first two and all
// sizes, and leaves the ids to verify_tokens, because reading all of a large file takes long.
//
// Foreign files say nothing about their vocabulary (size 0) nor about their content (digest() hashes the sizes and samples of
// it).
#pragma once

#include <optional>
#include <string>

#include "engine/data/loader.h"
#include "engine/data/token_array.h"
#include "engine/data/tokenizer.h"

namespace trivet::data {

struct TokenFileInfo {
  std::string format = "";  // "trivet", "megatron", "llm.c"
  TokenType type = TokenType::UInt8;
  int64_t tokens = 0, vocabulary_size = 0;                               // 0: unknown
  int64_t documents = 0;                                                 // Megatron; 0: unknown
  std::string tokenizer_name = "", tokenizer_text = "", data_hash = "";  // trivet only
};

// A token file and what its header says.
class StoredTokenFile : public TokenFile {
 public:
  virtual const TokenFileInfo& info() const = 0;
};

// What the content says the file is. Plain text, gzip and everything unknown: nothing.
enum class TokenFormat { Trivet, Megatron, LlmC };
std::optional<TokenFormat> token_format_of(const std::string& path);

// Any of the three; ids are read from the disk when they are asked for. Throws DataError (exit 2) for what is not a token file
// and (exit 18) for one that is damaged.
std::shared_ptr<StoredTokenFile> open_token_file(const std::string& path);
std::shared_ptr<TokenFile> open_tokens(const std::string& path);

// Reads everything: the checksum of the ids, and that each id is inside the vocabulary.
void verify_tokens(const std::string& path);

// Writes our own format in pieces; nothing is at `path` before finish(). Without finish() the destructor removes what was
// written.
class TokenFileWriter {
 public:
  TokenFileWriter(std::string path, const Tokenizer& tokenizer);
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;
  ~TokenFileWriter();
  void add(std::span<const int32_t> ids);
  int64_t tokens() const;
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trivet::data
