#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/open_files.h"
#include "data/data_error.h"
#include "data/hash.h"
#include "data/token_file.h"
#include "data/token_header.h"

namespace trivet::data {

struct TokenFileWriter::State {
  std::string path, temporary;
  std::ofstream file;
  TokenHeader header;
  TokenType type = TokenType::UInt8;
  StreamingHash hash;
  std::vector<int64_t> document_ends;
  std::vector<uint8_t> ignored;  // a bit for each token up to the last one that is ignored
  bool pairs = false;
  bool finished = false;

  void ignore(uint64_t token) {
    ignored.resize(std::max<size_t>(ignored.size(), token / 8 + 1));
    ignored[token / 8] = static_cast<uint8_t>(ignored[token / 8] | 1u << token % 8);
  }

  // A document without tokens does not count.
  void end_document(uint64_t end) {
    const auto before = document_ends.empty() ? 0 : static_cast<uint64_t>(document_ends.back());
    if (end > before) document_ends.push_back(static_cast<int64_t>(end));
  }

  // Writes the part that follows the ids in version 2.
  void write_documents() {
    if (document_ends.empty() && ignored.empty()) return;
    if (!document_ends.empty()) end_document(header.tokens);
    header.version = pairs ? kPairsVersion : kTokenVersion;
    const uint64_t end = header.tokens_offset + header.tokens * header.bytes_per_token;
    write("\0\0\0\0\0\0\0", documents_offset(header) - end);
    const std::string_view ends(reinterpret_cast<const char*>(document_ends.data()), document_ends.size() * sizeof(int64_t));
    header.documents = document_ends.size();
    header.documents_xxh3 = hash_bytes(ends);
    write(ends.data(), ends.size());
    if (ignored.empty()) return;
    ignored.resize((header.tokens + 7) / 8);
    const std::string_view bits(reinterpret_cast<const char*>(ignored.data()), ignored.size());
    header.ignored_bytes = bits.size();
    header.ignored_xxh3 = hash_bytes(bits);
    write(bits.data(), bits.size());
  }

  void write(const void* bytes, size_t count) {
    file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(count));
    if (!file) bad_file(path, std::string("cannot be written: ") + std::strerror(errno));
  }
};

TokenFileWriter::TokenFileWriter(std::string path, const Tokenizer& tokenizer, bool pairs) : state_(std::make_unique<State>()) {
  state_->path = std::move(path);
  state_->pairs = pairs;
  state_->temporary = fmt::format("{}.{}.tmp", state_->path, ::getpid());
  state_->file.open(state_->temporary, std::ios::binary | std::ios::trunc);
  if (!state_->file) check_open_files(state_->path, errno);
  if (!state_->file) bad_file(state_->path, std::string("cannot be written: ") + std::strerror(errno));

  const std::string text = tokenizer.to_text(), name = tokenizer.name();
  state_->type = token_type_for(tokenizer.vocabulary_size());
  TokenHeader& header = state_->header;
  std::memcpy(header.magic, kTokenMagic, sizeof header.magic);
  header.bytes_per_token = static_cast<uint32_t>(state_->type);
  header.vocabulary_size = static_cast<uint64_t>(tokenizer.vocabulary_size());
  header.tokenizer_bytes = text.size();
  header.tokenizer_xxh3 = hash_bytes(text);
  header.tokens_offset = (sizeof header + text.size() + 63) / 64 * 64;
  std::memcpy(header.tokenizer_name, name.data(), std::min(name.size(), sizeof header.tokenizer_name));

  std::string before(header.tokens_offset, '\0');
  text.copy(before.data() + sizeof header, text.size());
  state_->write(before.data(), before.size());  // finish() fills in the header
}

TokenFileWriter::~TokenFileWriter() {
  if (state_->finished) return;
  state_->file.close();
  std::error_code ignored;
  std::filesystem::remove(state_->temporary, ignored);
}

void TokenFileWriter::add(std::span<const int32_t> ids) {
  std::vector<std::byte> packed;
  append_packed(packed, ids, state_->type);
  state_->write(packed.data(), packed.size());
  state_->hash.add({reinterpret_cast<const char*>(packed.data()), packed.size()});
  state_->header.tokens += ids.size();
}

void TokenFileWriter::add_text(const EncodedText& text) {
  const uint64_t first = state_->header.tokens;
  for (const int64_t end : text.document_ends) state_->end_document(first + static_cast<uint64_t>(end));
  for (size_t i = 0; i < text.ignored.size(); ++i)
    if (text.ignored[i] != 0) state_->ignore(first + i);
  add(std::span<const int32_t>(text.ids));
}

void TokenFileWriter::end_document() { state_->end_document(state_->header.tokens); }

int64_t TokenFileWriter::tokens() const { return static_cast<int64_t>(state_->header.tokens); }

int64_t TokenFileWriter::ignored_tokens() const {
  int64_t count = 0;
  for (const uint8_t byte : state_->ignored) count += std::popcount(byte);
  return count;
}

void TokenFileWriter::finish() {
  TokenHeader& header = state_->header;
  header.tokens_xxh3 = state_->hash.value();
  state_->write_documents();
  header.header_xxh3 = hash_bytes({reinterpret_cast<const char*>(&header), kTokenHeaderHashed});
  state_->file.seekp(0);
  state_->write(&header, sizeof header);
  state_->file.close();
  if (!state_->file) bad_file(state_->path, std::string("cannot be written: ") + std::strerror(errno));
  std::filesystem::rename(state_->temporary, state_->path);
  state_->finished = true;
}

}  // namespace trivet::data
