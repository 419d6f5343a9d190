// Token ids in one of four widths, stored in memory or in a file, slices of them, and sequences joined end to end.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "data/data_file.h"
#include "data/encoded_text.h"
#include "data/token_sequence.h"

namespace trivet::data {

enum class TokenType : uint32_t { UInt8 = 1, UInt16 = 2, Int32 = 4, Int64 = 8 };  // value = bytes per token; Int64: NumPy's

// The narrowest type for ids below `vocabulary_size`.
TokenType token_type_for(int64_t vocabulary_size);
inline int64_t bytes_of(TokenType type) { return static_cast<int64_t>(type); }

// Ids that are stored back to back in a file. The file must outlive this struct.
struct StoredTokens {
  const DataFile* file = nullptr;
  int64_t offset = 0;  // where the first id is
  TokenType type = TokenType::UInt8;
  int64_t count = 0;

  // out[i] = token first + i. A vocabulary size of 0 is unknown and not checked.
  void read(int64_t first, std::span<int32_t> out, int64_t vocabulary_size) const;
};

// Throws DataError naming the position and the id when one is outside [0, vocabulary_size).
void check_ids(int64_t first, std::span<const int32_t> ids, int64_t vocabulary_size, const std::string& source);

void append_packed(std::vector<std::byte>& bytes, std::span<const int32_t> ids, TokenType type);

// Tokens that are made from a text at the start.
class TokenArray : public TokenSequence {
 public:
  TokenArray(std::span<const int32_t> ids, int64_t vocabulary_size);
  TokenArray(EncodedText text, int64_t vocabulary_size, bool pairs = false);

  int64_t tokens() const override { return count_; }
  int64_t vocabulary_size() const override { return vocabulary_size_; }
  void read(int64_t first, std::span<int32_t> out) const override;
  std::vector<int64_t> document_ends() const override { return document_ends_; }
  bool has_pairs() const override { return pairs_; }
  bool marks_prompts() const override { return !ignored_.empty(); }
  void ignore(int64_t first, std::span<int32_t> targets) const override;
  std::string digest() const override { return digest_; }

 private:
  TokenType type_;
  int64_t count_;
  std::vector<std::byte> bytes_;
  std::vector<uint8_t> ignored_;
  std::vector<int64_t> document_ends_;
  int64_t vocabulary_size_;
  bool pairs_ = false;
  std::string digest_;
};

// Tokens [first, first + count) of another TokenFile.
class TokenSlice : public TokenSequence {
 public:
  TokenSlice(std::shared_ptr<const TokenSequence> whole, int64_t first, int64_t count);

  int64_t tokens() const override { return count_; }
  int64_t vocabulary_size() const override { return whole_->vocabulary_size(); }
  void read(int64_t first, std::span<int32_t> out) const override;
  void ignore(int64_t first, std::span<int32_t> targets) const override;
  // A document that begins or ends outside is cut.
  std::vector<int64_t> document_ends() const override;
  bool has_pairs() const override { return whole_->has_pairs(); }
  bool marks_prompts() const override { return whole_->marks_prompts(); }
  std::string digest() const override;

 private:
  std::shared_ptr<const TokenSequence> whole_;
  int64_t first_, count_;
};

// Parts one after the other, such as the shards of a data set. They must have the same vocabulary size.
class JoinedTokens : public TokenSequence {
 public:
  explicit JoinedTokens(std::vector<std::shared_ptr<TokenSequence>> parts);  // at least one

  int64_t tokens() const override { return ends_.back(); }
  int64_t vocabulary_size() const override { return parts_[0]->vocabulary_size(); }
  void read(int64_t first, std::span<int32_t> out) const override;
  void ignore(int64_t first, std::span<int32_t> targets) const override;
  // Empty if a part does not say where its documents end. A document does not continue in the next part.
  std::vector<int64_t> document_ends() const override;
  bool has_pairs() const override;      // all parts have them
  bool marks_prompts() const override;  // some part does
  std::string digest() const override;

 private:
  // Calls work(part, first within it, values) for the parts that the values are in.
  template <typename Work>
  void over_parts(int64_t first, std::span<int32_t> values, Work work) const;

  std::vector<std::shared_ptr<TokenSequence>> parts_;
  std::vector<int64_t> ends_;  // end of each part
};

}  // namespace trivet::data
