// Files of token ids: Trivet's own format, and three formats that other programs write.
//
// Trivet's format (.tokens; little-endian; docs/data.md has the table of offsets) is a header of 128 bytes, the text of the
// tokenizer that made it, zeros up to a multiple of 64, and the ids back to back. Version 2 adds where documents end and, if
// the loss ignores some tokens, a bit for each; in version 3 the documents are pairs (TokenSequence::has_pairs). It is complete
// in itself: the tokenizer travels with the data. The header carries a checksum of itself and of each part; opening checks all
// sizes, the header and the tokenizer, and leaves the ids to verify_tokens, because reading all of a large file takes long.
//
// Foreign files state neither their vocabulary (its size is 0) nor a checksum (digest() hashes the sizes and samples of the
// content).
#pragma once

#include <optional>
#include <string>

#include "data/token_array.h"
#include "data/token_sequence.h"
#include "data/tokenizer.h"

namespace trivet::data {

struct TokenFileInfo {
  std::string format = "";  // "trivet", "megatron", "llm.c", "numpy"
  TokenType type = TokenType::UInt8;
  int64_t tokens = 0, vocabulary_size = 0;                               // 0: unknown
  int64_t documents = 0;                                                 // 0: unknown
  bool pairs = false;                                                    // documents are pairs
  bool ignores_some = false;                                             // targets, in the loss
  std::string tokenizer_name = "", tokenizer_text = "", data_hash = "";  // trivet only
};

// A token file and what its header says.
class StoredTokenFile : public TokenSequence {
 public:
  virtual const TokenFileInfo& info() const = 0;
};

// The format of the file, by its name or its content; nullopt for plain text, gzip and everything unknown.
enum class TokenFormat { Trivet, Megatron, LlmC, Numpy };
std::optional<TokenFormat> token_format_of(const std::string& path);
// Checks whether a file that begins so is one of them, whatever its name.
bool begins_token_file(std::string_view start);

// Checks whether a .tokens file is still being written: it is shorter than its header says, or has none (or zeros) yet.
bool is_incomplete(const std::string& path);

// Opens any of the formats; ids are read from the disk when they are requested. Throws DataError: exit code 2 for a file
// that is not a token file, exit code 18 for one that is damaged.
std::shared_ptr<StoredTokenFile> open_token_file(const std::string& path);
std::shared_ptr<TokenSequence> open_tokens(const std::string& path);

// Reads the whole file to check the checksum of the ids and that each id is inside the vocabulary.
void verify_tokens(const std::string& path);

// Writes Trivet's format in pieces: version 3 with pairs of documents, 2 if documents end or tokens are ignored, otherwise 1.
// The file appears at `path` in finish(); without finish() the destructor removes what was written.
class TokenFileWriter {
 public:
  TokenFileWriter(std::string path, const Tokenizer& tokenizer, bool pairs = false);
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;
  ~TokenFileWriter();
  void add(std::span<const int32_t> ids);
  void add_text(const EncodedText& text);
  void end_document();
  int64_t tokens() const;
  int64_t ignored_tokens() const;
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trivet::data
