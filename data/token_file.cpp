#include "data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>

#include "data/data_error.h"
#include "data/data_file.h"
#include "data/foreign_tokens.h"
#include "data/hash.h"
#include "data/text_file.h"
#include "data/token_header.h"

namespace trivet::data {
namespace {

constexpr std::string_view kTrivetMagic(kTokenMagic, 8);

class TrivetTokens : public StoredTokenFile {
 public:
  explicit TrivetTokens(const std::string& path) : file_(path) {
    read_header();
    check_sizes();
    check_tokenizer();
    info_ = {
        .format = "trivet",
        .type = static_cast<TokenType>(header_.bytes_per_token),
        .tokens = static_cast<int64_t>(header_.tokens),
        .vocabulary_size = static_cast<int64_t>(header_.vocabulary_size),
        .documents = static_cast<int64_t>(header_.documents),
        .pairs = header_.version == kPairsVersion,
        .ignores_some = header_.ignored_bytes > 0,
        .tokenizer_name = std::string(header_.tokenizer_name, strnlen(header_.tokenizer_name, sizeof header_.tokenizer_name)),
        .tokenizer_text = file_.text(sizeof header_, static_cast<int64_t>(header_.tokenizer_bytes)),
        .data_hash = hexadecimal(header_.tokens_xxh3)};
    ids_ = {&file_, static_cast<int64_t>(header_.tokens_offset), info_.type, info_.tokens};
  }

  int64_t tokens() const override { return ids_.count; }
  int64_t vocabulary_size() const override { return info_.vocabulary_size; }
  void read(int64_t first, std::span<int32_t> out) const override { ids_.read(first, out, info_.vocabulary_size); }
  std::vector<int64_t> document_ends() const override {
    if (header_.documents == 0) return {};
    verify_part("the ends of documents", documents_offset(header_), header_.documents * 8, header_.documents_xxh3);
    std::vector<int64_t> ends(header_.documents);
    file_.read(static_cast<int64_t>(documents_offset(header_)), std::as_writable_bytes(std::span(ends)));
    const bool ascending = ends[0] > 0 && std::ranges::is_sorted(ends, std::less_equal<>());
    if (!ascending || ends.back() != ids_.count) bad_file(file_.path(), "the ends of its documents do not rise to its end");
    return ends;
  }
  bool has_pairs() const override { return info_.pairs; }
  bool marks_prompts() const override { return info_.ignores_some; }
  void ignore(int64_t first, std::span<int32_t> targets) const override {
    if (header_.ignored_bytes == 0 || targets.empty()) return;
    const int64_t last = first + static_cast<int64_t>(targets.size()) - 1;
    if (first < 0 || last >= ids_.count) throw std::logic_error("ignore: targets beyond the end were asked for");
    const std::string bits = file_.text(ignored_offset() + first / 8, last / 8 - first / 8 + 1);
    for (size_t i = 0; i < targets.size(); ++i) {
      const int64_t bit = first % 8 + static_cast<int64_t>(i);
      if ((static_cast<unsigned char>(bits[bit / 8]) >> (bit % 8) & 1) != 0) targets[i] = -1;
    }
  }
  std::string digest() const override {
    std::string text = fmt::format("tokens {} vocabulary {} xxh3 {}", info_.tokens, info_.vocabulary_size, info_.data_hash);
    if (header_.documents > 1) text += fmt::format(" documents {} {}", header_.documents, hexadecimal(header_.documents_xxh3));
    if (header_.ignored_bytes > 0) text += " ignored " + hexadecimal(header_.ignored_xxh3);
    if (info_.pairs) text += " pairs";
    return text;
  }
  const TokenFileInfo& info() const override { return info_; }

  void verify() const {
    verify_part("the tokens", header_.tokens_offset, header_.tokens * header_.bytes_per_token, header_.tokens_xxh3);
    document_ends();
    if (header_.ignored_bytes > 0)
      verify_part("the ignored tokens", static_cast<uint64_t>(ignored_offset()), header_.ignored_bytes, header_.ignored_xxh3);
  }

 private:
  void verify_part(std::string_view what, uint64_t offset, uint64_t bytes, uint64_t expected) const {
    const uint64_t found = file_.hash(static_cast<int64_t>(offset), static_cast<int64_t>(bytes));
    if (found != expected)
      data_changed(file_.path(),
                   fmt::format("the checksum of {} is {}, but the header says {}: the file is damaged; prepare it again", what,
                               hexadecimal(found), hexadecimal(expected)));
  }

  int64_t ignored_offset() const { return static_cast<int64_t>(documents_offset(header_) + header_.documents * 8); }

  void read_header() {
    const std::string start = file_.text(0, sizeof header_);
    if (!start.starts_with(kTrivetMagic))
      bad_file(file_.path(),
               fmt::format("is not a token file (it does not start with \"TRIVTOK\"); {}",
                           file_.path().ends_with(".tokens")
                               ? "if it is a text, give it another name, such as NAME.txt"
                               : "ids of tokens without a header, such as nanoGPT's train.bin, are read with --read-as uint16 "
                                 "(in a config: data.read_as)"));
    if (start.size() < sizeof header_)
      data_changed(file_.path(),
                   fmt::format("is truncated: it has {} bytes, but the header alone has {}", start.size(), sizeof header_));
    std::memcpy(&header_, start.data(), sizeof header_);
    if (header_.version < 1 || header_.version > kPairsVersion)
      bad_file(file_.path(),
               fmt::format("token file version {}; this program reads versions 1 to {}", header_.version, kPairsVersion));
    if (hash_bytes(std::string_view(start).substr(0, kTokenHeaderHashed)) != header_.header_xxh3)
      data_changed(file_.path(), "the checksum of the header does not match: the file is damaged; prepare it again");
  }

  void check_sizes() const {
    if (header_.bytes_per_token != 1 && header_.bytes_per_token != 2 && header_.bytes_per_token != 4)
      bad_file(file_.path(), fmt::format("{} bytes per token are not accepted; it must be 1, 2 or 4", header_.bytes_per_token));
    if (header_.tokenizer_bytes > kMostTokenBytes || header_.tokens > kMostTokenBytes ||
        header_.tokens_offset > kMostTokenBytes || header_.tokens_offset < sizeof header_ + header_.tokenizer_bytes)
      bad_file(file_.path(), fmt::format("impossible header: {} tokens at byte {}", header_.tokens, header_.tokens_offset));
    if (header_.tokenizer_bytes > static_cast<uint64_t>(kMaxTokenizerBytes))
      bad_file(file_.path(), fmt::format("the tokenizer in it has {} bytes; at most {} are accepted", header_.tokenizer_bytes,
                                         kMaxTokenizerBytes));
    if (header_.version == kPairsVersion && (header_.documents == 0 || header_.documents % 2 != 0))
      bad_file(file_.path(), fmt::format("impossible header: {} documents are no pairs", header_.documents));
    if (header_.version >= kTokenVersion) {
      const uint64_t ignored = header_.ignored_bytes;
      if (header_.documents > header_.tokens || (ignored != 0 && ignored != (header_.tokens + 7) / 8))
        bad_file(file_.path(), fmt::format("impossible header: {} tokens, {} documents, {} bytes of ignored tokens",
                                           header_.tokens, header_.documents, ignored));
    } else if (header_.documents != 0 || header_.ignored_bytes != 0) {
      bad_file(file_.path(), "impossible header: documents in a file of version 1");
    }
    const auto found = static_cast<uint64_t>(file_.bytes()), expected = file_bytes(header_);
    if (found != expected)
      data_changed(file_.path(), fmt::format("has {} bytes, but {} tokens of {} bytes from byte {} make {}: the file {}", found,
                                             header_.tokens, header_.bytes_per_token, header_.tokens_offset, expected,
                                             found < expected ? "is truncated" : "has grown"));
  }

  void check_tokenizer() const {
    if (file_.hash(sizeof header_, static_cast<int64_t>(header_.tokenizer_bytes)) != header_.tokenizer_xxh3)
      data_changed(file_.path(), "the checksum of the tokenizer does not match: the file is damaged; prepare it again");
  }

  DataFile file_;
  TokenHeader header_;
  TokenFileInfo info_;
  StoredTokens ids_;
};

// Checks whether the sizes in a header can be added.
bool may_be_added(const TokenHeader& header) {
  const uint64_t sizes[] = {header.tokens_offset, header.tokens, header.documents, header.ignored_bytes};
  return header.bytes_per_token <= 4 && std::ranges::all_of(sizes, [](uint64_t size) { return size <= kMostTokenBytes; });
}

void read_everything(const TokenSequence& file) {
  std::vector<int32_t> ids;
  constexpr int64_t kPiece = 1 << 16;
  for (int64_t first = 0; first < file.tokens(); first += kPiece) {
    ids.resize(std::min(kPiece, file.tokens() - first));
    file.read(first, ids);
  }
}

}  // namespace

std::optional<TokenFormat> token_format_of(const std::string& path) {
  if (path.ends_with(".tokens")) return TokenFormat::Trivet;
  if (is_megatron(path)) return TokenFormat::Megatron;
  if (path.ends_with(".npy")) return TokenFormat::Numpy;
  const std::string start = DataFile(path).text(0, 8);
  if (start.starts_with(kTrivetMagic)) return TokenFormat::Trivet;
  if (is_llm_c(start)) return TokenFormat::LlmC;
  if (is_numpy(start)) return TokenFormat::Numpy;
  return std::nullopt;
}

bool begins_token_file(std::string_view start) { return start.starts_with(kTrivetMagic) || is_llm_c(start) || is_numpy(start); }

bool is_incomplete(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;  // open_token_file() says why
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return false;
  const auto bytes = static_cast<int64_t>(file.tellg());
  const std::string nothing(sizeof(TokenHeader), '\0');
  std::string start = nothing;
  file.seekg(0);
  if (!file.read(start.data(), static_cast<std::streamsize>(start.size())) || start == nothing) return true;
  TokenHeader header;
  std::memcpy(&header, start.data(), sizeof header);
  const bool intact = hash_bytes(std::string_view(start).substr(0, kTokenHeaderHashed)) == header.header_xxh3;
  return intact && may_be_added(header) && static_cast<uint64_t>(bytes) < file_bytes(header);
}

std::shared_ptr<StoredTokenFile> open_token_file(const std::string& path) {
  switch (token_format_of(path).value_or(TokenFormat::Trivet)) {
    case TokenFormat::Trivet: return std::make_shared<TrivetTokens>(path);
    case TokenFormat::Megatron: return open_megatron(path);
    case TokenFormat::LlmC: return open_llm_c(path);
    case TokenFormat::Numpy: return open_numpy(path);
  }
  return nullptr;
}

std::shared_ptr<TokenSequence> open_tokens(const std::string& path) { return open_token_file(path); }

void verify_tokens(const std::string& path) {
  const auto file = open_token_file(path);
  if (const auto* own = dynamic_cast<const TrivetTokens*>(file.get())) own->verify();
  read_everything(*file);
}

}  // namespace trivet::data
