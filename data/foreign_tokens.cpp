#include "data/foreign_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "core/printable.h"
#include "data/data_error.h"
#include "data/data_file.h"
#include "data/gzip.h"
#include "data/hash.h"
#include "data/zstd.h"

namespace trivet::data {
namespace {

constexpr std::string_view kMegatronMagic{"MMIDIDX\0\0", 9};
constexpr int64_t kMegatronHeaderBytes = 34, kLlmCHeaderBytes = 1024;
constexpr int32_t kLlmCMagic16 = 20240520, kLlmCMagic32 = 20240801;
constexpr int32_t kFirstOfDocument16 = 50256, kFirstOfDocument32 = 128000;  // <|endoftext|>, <|begin_of_text|>
constexpr std::string_view kNumpyMagic{"\x93NUMPY"};

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

// Calls work(first, ids) for all tokens, some at a time.
template <typename Work>
void for_all_tokens(const TokenSequence& tokens, Work work) {
  constexpr int64_t kPiece = 1 << 16;
  std::vector<int32_t> ids;
  for (int64_t first = 0; first < tokens.tokens(); first += kPiece) {
    ids.resize(std::min(kPiece, tokens.tokens() - first));
    tokens.read(first, ids);
    work(first, std::span<const int32_t>(ids));
  }
}

class LlmCTokens final : public ForeignTokens {
 public:
  using ForeignTokens::ForeignTokens;
  std::vector<int64_t> document_ends() const override {
    const int32_t begins = info().type == TokenType::Int32 ? kFirstOfDocument32 : kFirstOfDocument16;
    std::vector<int64_t> ends;
    for_all_tokens(*this, [&](int64_t first, std::span<const int32_t> ids) {
      for (size_t i = 0; i < ids.size(); ++i) {
        const int64_t place = first + static_cast<int64_t>(i);
        if (ids[i] == begins && place > 0) ends.push_back(place);
      }
    });
    if (tokens() > 0) ends.push_back(tokens());
    return ends;
  }
};

// Rows of equal length.
class NumpyTokens final : public ForeignTokens {
 public:
  NumpyTokens(std::unique_ptr<DataFile> file, int64_t offset, const TokenFileInfo& info)
      : ForeignTokens(std::move(file), offset, info, "") {}
  std::vector<int64_t> document_ends() const override {
    std::vector<int64_t> ends;
    const int64_t rows = info().documents;
    for (int64_t row = 1; row <= rows && tokens() > 0; ++row) ends.push_back(tokens() / rows * row);
    return ends;
  }
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

// Calls work(number, sequence) for the sequences at which documents begin, and at the end with the number of sequences.
template <typename Work>
void for_all_documents(const DataFile& index, const MegatronIndex& found, Work work) {
  constexpr int64_t kPiece = 1 << 16;
  const int64_t first = kMegatronHeaderBytes + found.sequences * 12;
  for (int64_t done = 0; done < found.documents; done += kPiece) {
    const int64_t count = std::min(kPiece, found.documents - done);
    const std::string sequences = index.text(first + done * 8, count * 8);
    for (int64_t i = 0; i < count; ++i) work(done + i, load<int64_t>(sequences, i * 8));
  }
}

void check_documents(const DataFile& index, const MegatronIndex& found) {
  int64_t before = 0;
  for_all_documents(index, found, [&](int64_t number, int64_t sequence) {
    const bool right = number == 0 ? sequence == 0 : sequence >= before;
    const bool last = number + 1 == found.documents;
    if (!right || sequence > found.sequences || (last && sequence != found.sequences))
      bad_file(index.path(),
               fmt::format("entry {} of the document index is sequence {}; the entries must rise from 0 to {}, the number of "
                           "sequences",
                           number, sequence, found.sequences));
    before = sequence;
  });
}

class MegatronTokens final : public ForeignTokens {
 public:
  MegatronTokens(std::unique_ptr<DataFile> file, const TokenFileInfo& info, const std::string& index_path,
                 const std::string& index_hash)
      : ForeignTokens(std::move(file), 0, info, index_hash), index_path_(index_path) {}
  std::vector<int64_t> document_ends() const override;

 private:
  std::string index_path_;
};

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
  check_documents(file, found);
  return found;
}

std::vector<int64_t> MegatronTokens::document_ends() const {
  const DataFile index(index_path_);
  const MegatronIndex found = read_index(index);
  if (found.tokens != tokens()) data_changed(index_path_, "has changed since it was opened");
  std::vector<int64_t> ends;
  for_all_documents(index, found, [&](int64_t, int64_t sequence) {
    int64_t pointer = tokens();  // where the sequence begins
    if (sequence < found.sequences)
      pointer =
          load<int64_t>(index.text(kMegatronHeaderBytes + found.sequences * 4 + sequence * 8, 8), 0) / bytes_of(found.type);
    if (pointer > (ends.empty() ? 0 : ends.back())) ends.push_back(pointer);
  });
  return ends;
}

// The dictionary of a NumPy file: {'descr': '<u2', 'fortran_order': False, 'shape': (2, 3), }
struct NumpyHeader {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

// Reads Python's literal as NumPy writes it: three keys in any order.
class NumpyDictionary {
 public:
  NumpyDictionary(std::string_view text, const std::string& path) : rest_(text), path_(path) {}

  NumpyHeader read() {
    NumpyHeader header;
    expect("{");
    int keys = 0;
    while (!takes("}")) {
      const std::string key = quoted();
      expect(":");
      if (key == "descr")
        header.descr = quoted();
      else if (key == "fortran_order")
        header.fortran_order = truth();
      else if (key == "shape")
        header.shape = numbers();
      else
        refuse();
      ++keys;
      if (!takes(",")) {
        expect("}");
        break;
      }
    }
    skip_spaces();
    if (keys != 3 || header.descr.empty() || !rest_.empty()) refuse();
    return header;
  }

 private:
  [[noreturn]] void refuse() const {
    bad_file(path_, "its header is not that of a NumPy array of numbers; save the ids with numpy.save");
  }
  void skip_spaces() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size())); }
  bool takes(std::string_view word) {
    skip_spaces();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    if (!takes(word)) refuse();
  }
  std::string quoted() {
    expect("'");
    const size_t end = rest_.find('\'');
    if (end == std::string_view::npos) refuse();
    const std::string text(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return text;
  }
  bool truth() {
    const bool is_true = takes("True");
    if (!is_true) expect("False");
    return is_true;
  }
  std::vector<int64_t> numbers() {
    std::vector<int64_t> found;
    expect("(");
    while (!takes(")")) {
      skip_spaces();
      int64_t number = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
      if (error != std::errc{} || number < 0) refuse();
      rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
      found.push_back(number);
      if (!takes(",")) {
        expect(")");
        break;
      }
    }
    return found;
  }

  std::string_view rest_;
  const std::string& path_;
};

TokenType numpy_type(const std::string& descr, const std::string& path) {
  if (descr == "|u1") return TokenType::UInt8;
  if (descr == "<u2") return TokenType::UInt16;
  if (descr == "<i4" || descr == "<u4") return TokenType::Int32;
  if (descr == "<i8" || descr == "<u8") return TokenType::Int64;
  bad_file(path, fmt::format("numbers of type '{}' are not accepted; use uint8, uint16, int32, uint32, int64 or uint64, "
                             "little-endian, as in numpy.save(path, ids.astype('<u2'))",
                             printable(descr)));
}

// Multiplies, but not beyond a number that no file has as bytes.
int64_t number_of_ids(const std::vector<int64_t>& shape) {
  constexpr int64_t kMost = int64_t{1} << 56;
  int64_t all = 1;
  for (const int64_t dim : shape) all = dim > 0 && all > kMost / dim ? kMost : std::min(all * dim, kMost);
  return all;
}

}  // namespace

bool is_megatron(const std::string& path) {
  if (path.ends_with(".idx")) return true;
  return path.ends_with(".bin") && std::filesystem::exists(without_extension(path) + ".idx");
}

std::string data_file_of(const std::string& index_path) { return without_extension(index_path) + ".bin"; }

bool is_llm_c(std::string_view content) {
  if (content.size() < 4) return false;
  const auto magic = load<int32_t>(content, 0);
  return magic == kLlmCMagic16 || magic == kLlmCMagic32;
}

bool is_numpy(std::string_view content) { return content.starts_with(kNumpyMagic); }

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
  return std::make_shared<MegatronTokens>(std::move(data), info, index_path, " index " + sampled_hash(index_file));
}

std::shared_ptr<StoredTokenFile> open_ids(const std::string& path, TokenType type) {
  auto file = std::make_unique<DataFile>(path);
  const std::string start = file->text(0, 8);
  if (begins_token_file(start) || is_gzip(start) || is_zstd(start))
    bad_file(path,
             "is not without a header: it begins as a file of tokens, or one that is packed, does; leave out data.read_as");
  if (file->bytes() % bytes_of(type) != 0)
    bad_file(path, fmt::format("has {} bytes, which is no multiple of the {} bytes of an id; data.read_as is for ids without a "
                               "header",
                               file->bytes(), bytes_of(type)));
  const TokenFileInfo info{.format = "headerless", .type = type, .tokens = file->bytes() / bytes_of(type)};
  return std::make_shared<ForeignTokens>(std::move(file), 0, info, "");
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
  return std::make_shared<LlmCTokens>(std::move(file), kLlmCHeaderBytes, info, "");
}

std::shared_ptr<StoredTokenFile> open_numpy(const std::string& path) {
  auto file = std::make_unique<DataFile>(path);
  const std::string start = file->text(0, 12);
  if (!is_numpy(start)) bad_file(path, "is not a NumPy array (it does not start with \"\\x93NUMPY\")");
  const int64_t before = start.size() > 6 && start[6] == 1 ? 10 : 12;  // bytes before the dictionary
  if (static_cast<int64_t>(start.size()) < before) data_changed(path, "is truncated: its header is not complete");
  if (const int version = static_cast<unsigned char>(start[6]); version < 1 || version > 3)
    bad_file(path, fmt::format("NumPy format version {}; this program reads versions 1 to 3", version));
  const int64_t length = before == 10 ? load<uint16_t>(start, 8) : load<uint32_t>(start, 8), offset = before + length;
  constexpr int64_t kMostLength = 1 << 16;
  if (length > kMostLength)
    bad_file(path, fmt::format("its header has {} bytes; at most {} are accepted", length, kMostLength));
  if (offset > file->bytes()) data_changed(path, "is truncated: its header is not complete");
  const std::string dictionary = file->text(before, length);
  const NumpyHeader header = NumpyDictionary(dictionary, path).read();
  const TokenType type = numpy_type(header.descr, path);
  const bool rows = header.shape.size() == 2;
  if (header.shape.size() != 1 && !rows)
    bad_file(path, fmt::format("has {} dimensions; ids have one, or two with a document in each row", header.shape.size()));
  if (rows && header.fortran_order) bad_file(path, "is stored by columns; save numpy.ascontiguousarray(ids)");
  const int64_t count = number_of_ids(header.shape), expected = offset + count * bytes_of(type);
  if (file->bytes() != expected)
    data_changed(path, fmt::format("has {} bytes, but {} tokens of {} bytes after the header make {}", file->bytes(), count,
                                   bytes_of(type), expected));
  const TokenFileInfo info{
      .format = "numpy", .type = type, .tokens = count, .documents = rows && count > 0 ? header.shape[0] : 0};
  return std::make_shared<NumpyTokens>(std::move(file), offset, info);
}

}  // namespace trivet::data
