#include "engine/data/foreign_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "engine/data/data_error.h"
#include "engine/data/data_file.h"
#include "engine/data/hash.h"

namespace trivet::data {
namespace {

constexpr std::string_view kMegatronMagic{"MMIDIDX\0\0", 9};
constexpr int64_t kMegatronHeaderBytes = 34, kLlmCHeaderBytes = 1024;
constexpr int32_t kLlmCMagic16 = 20240520, kLlmCMagic32 = 20240801;

// Reads a value that need not be aligned: these formats align nothing.
template <typename T>
T load(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// A hash of the whole file if it has at most 64 MiB, otherwise of 64 pieces of 1 MiB spread evenly over it. The file may be
// very large, and the hash only has to reveal that another file was put in its place.
std::string sampled_hash(const DataFile& file) {
  constexpr int64_t kPieces = 64, kPiece = int64_t{1} << 20;
  if (file.bytes() <= kPieces * kPiece) return hexadecimal(file.hash(0, file.bytes()));
  StreamingHash hash;
  for (int64_t i = 0; i < kPieces; ++i) hash.add(file.text((file.bytes() - kPiece) / (kPieces - 1) * i, kPiece));
  return hexadecimal(hash.value());
}

class ForeignTokens : public StoredTokenFile {
 public:
  ForeignTokens(std::unique_ptr<DataFile> file, int64_t offset, TokenFileInfo info, std::string index_hash)
      : file_(std::move(file)), info_(std::move(info)), index_hash_(std::move(index_hash)) {
    ids_ = {file_.get(), offset, info_.type, info_.tokens};
  }
  int64_t tokens() const override { return ids_.count; }
  int64_t vocabulary_size() const override { return 0; }
  void read(int64_t first, std::span<int32_t> out) const override { ids_.read(first, out, 0); }
  std::string digest() const override {
    return fmt::format("{} tokens {} sampled {}{}", info_.format, info_.tokens, sampled_hash(*file_), index_hash_);
  }
  const TokenFileInfo& info() const override { return info_; }

 private:
  std::unique_ptr<DataFile> file_;
  TokenFileInfo info_;
  std::string index_hash_;
  StoredTokens ids_;
};

std::string without_extension(const std::string& path) { return path.substr(0, path.size() - 4); }

// 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 6 f64, 7 f32, 8 u16
TokenType megatron_type(uint8_t code, const std::string& path) {
  if (code == 1) return TokenType::UInt8;
  if (code == 4) return TokenType::Int32;
  if (code == 8) return TokenType::UInt16;
  bad_file(path, fmt::format("Megatron dtype code {} is not accepted; it must be 1 (uint8), 4 (int32) or 8 (uint16)", code));
}

struct MegatronIndex {
  TokenType type;
  int64_t sequences, documents, tokens;
};

// Counts the tokens, and checks that the sequences follow each other in the .bin without gaps, as the builder of the indexed
// dataset writes them.
int64_t tokens_of_sequences(const DataFile& index, int64_t sequences, TokenType type) {
  constexpr int64_t kPiece = 1 << 16;  // sequences read at once
  const int64_t first_length = kMegatronHeaderBytes, first_pointer = first_length + sequences * 4;
  int64_t tokens = 0;
  for (int64_t done = 0; done < sequences; done += kPiece) {
    const int64_t count = std::min(kPiece, sequences - done);
    const std::string lengths = index.text(first_length + done * 4, count * 4);
    const std::string pointers = index.text(first_pointer + done * 8, count * 8);
    for (int64_t i = 0; i < count; ++i) {
      const auto length = load<int32_t>(lengths, i * 4);
      const auto pointer = load<int64_t>(pointers, i * 8);
      if (length < 0 || pointer != tokens * bytes_of(type))
        bad_file(index.path(), fmt::format("sequence {} has {} tokens at byte {}, expected at byte {}", done + i, length,
                                           pointer, tokens * bytes_of(type)));
      tokens += length;
    }
  }
  return tokens;
}

MegatronIndex read_index(const DataFile& file) {
  const std::string& path = file.path();
  const std::string index = file.text(0, kMegatronHeaderBytes);
  if (!index.starts_with(kMegatronMagic)) bad_file(path, "is not a Megatron index (it does not start with \"MMIDIDX\")");
  if (file.bytes() < kMegatronHeaderBytes)
    data_changed(path,
                 fmt::format("is truncated: it has {} bytes, but the header alone has {}", file.bytes(), kMegatronHeaderBytes));
  if (const auto version = load<uint64_t>(index, 9); version != 1)
    bad_file(path, fmt::format("Megatron index version {}; this program reads version 1", version));
  MegatronIndex found{megatron_type(load<uint8_t>(index, 17), path), load<int64_t>(index, 18), load<int64_t>(index, 26), 0};
  const auto sequences = static_cast<uint64_t>(found.sequences), documents = static_cast<uint64_t>(found.documents);
  const auto limit = static_cast<uint64_t>(file.bytes());  // keeps the products below from overflowing
  const bool fits = sequences <= limit && documents <= limit;
  const uint64_t expected = fits ? kMegatronHeaderBytes + sequences * 12 + documents * 8 : 0;
  if (!fits || limit < expected)
    data_changed(path,
                 fmt::format("is truncated: {} bytes cannot hold {} sequences and {} documents", limit, sequences, documents));
  found.tokens = tokens_of_sequences(file, found.sequences, found.type);
  return found;
}

}  // namespace

bool is_megatron(const std::string& path) {
  if (path.ends_with(".idx")) return true;
  return path.ends_with(".bin") && std::filesystem::exists(without_extension(path) + ".idx");
}

bool is_llm_c(std::string_view content) {
  if (content.size() < 4) return false;
  const auto magic = load<int32_t>(content, 0);
  return magic == kLlmCMagic16 || magic == kLlmCMagic32;
}

std::shared_ptr<StoredTokenFile> open_megatron(const std::string& path) {
  const std::string index_path = without_extension(path) + ".idx", data_path = without_extension(path) + ".bin";
  const DataFile index_file(index_path);
  const MegatronIndex index = read_index(index_file);
  auto data = std::make_unique<DataFile>(data_path);
  if (data->bytes() != index.tokens * bytes_of(index.type))
    data_changed(data_path, fmt::format("has {} bytes, but {} states {} tokens of {} bytes, {} bytes in total", data->bytes(),
                                        index_path, index.tokens, bytes_of(index.type), index.tokens * bytes_of(index.type)));
  const TokenFileInfo info{
      .format = "megatron", .type = index.type, .tokens = index.tokens, .documents = std::max<int64_t>(0, index.documents - 1)};
  return std::make_shared<ForeignTokens>(std::move(data), 0, info, " index " + sampled_hash(index_file));
}

std::shared_ptr<StoredTokenFile> open_llm_c(const std::string& path) {
  auto file = std::make_unique<DataFile>(path);
  if (file->bytes() < kLlmCHeaderBytes)
    data_changed(
        path, fmt::format("is truncated: it has {} bytes, but the llm.c header alone has {}", file->bytes(), kLlmCHeaderBytes));
  const std::string start = file->text(0, 12);
  const auto magic = load<int32_t>(start, 0), version = load<int32_t>(start, 4), count = load<int32_t>(start, 8);
  const bool wide = magic == kLlmCMagic32;
  if (const int32_t known = wide ? 7 : 1; version != known)
    bad_file(path, fmt::format("llm.c token file with magic number {} and version {}; this program reads version {}", magic,
                               version, known));
  const TokenType type = wide ? TokenType::Int32 : TokenType::UInt16;
  const int64_t expected = kLlmCHeaderBytes + count * bytes_of(type);
  if (count < 0 || file->bytes() != expected)
    data_changed(path, fmt::format("has {} bytes, but {} tokens of {} bytes after the header make {}", file->bytes(), count,
                                   bytes_of(type), expected));
  const TokenFileInfo info{.format = "llm.c", .type = type, .tokens = count};
  return std::make_shared<ForeignTokens>(std::move(file), kLlmCHeaderBytes, info, "");
}

}  // namespace trivet::data
