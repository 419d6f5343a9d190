#include "data/tokenizers/sentencepiece.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base64.h"
#include "core/error.h"
#include "core/utf8.h"
#include "data/data_error.h"
#include "data/tokenizers/charsmap.h"
#include "data/tokenizers/code_points.h"
#include "data/tokenizers/decoders.h"
#include "data/tokenizers/rewritten_size.h"
#include "data/tokenizers/sentencepiece_file.h"
#include "data/tokenizers/sentencepiece_segmentation.h"

namespace trivet::data {
namespace {

constexpr std::string_view kSpace = "\u2581", kReplacement = "\uFFFD";

class SentencePieceNormalizer {
 public:
  SentencePieceNormalizer(const SentencePieceFile& file, const std::string& source)
      : dummy_prefix_(file.add_dummy_prefix),
        trim_(file.remove_extra_whitespaces),
        space_(file.escape_whitespaces ? kSpace : " "),
        as_suffix_(file.whitespace_as_suffix),
        symbols_(user_defined(file)),
        source_(source) {
    if (!file.charsmap.empty()) map_.emplace(file.charsmap, source);
  }

  std::string normalize(std::string_view text) const {
    const RewrittenSize size(text.size(), source_);
    while (trim_ && !text.empty()) {
      const auto [replacement, bytes] = beginning(text);
      if (replacement != " ") break;
      text.remove_prefix(bytes);
    }
    std::string out;
    if (text.empty()) return out;
    out.reserve(text.size() + text.size() / 2);
    if (dummy_prefix_ && !as_suffix_) out += space_;
    bool after_space = trim_;
    while (!text.empty()) {
      auto [replacement, bytes] = beginning(text);
      text.remove_prefix(bytes);
      while (after_space && replacement.starts_with(' ')) replacement.remove_prefix(1);
      if (!replacement.empty()) {
        for (char c : replacement) c == ' ' ? out += space_ : out += c;
        after_space = replacement.ends_with(' ');
        size.check(out.size());
      }
      if (!trim_) after_space = false;
    }
    while (trim_ && out.ends_with(space_)) out.resize(out.size() - space_.size());
    if (dummy_prefix_ && as_suffix_) out += space_;
    return out;
  }

 private:
  // Returns the beginning of the text after normalization, and how many bytes that replaces.
  std::pair<std::string_view, size_t> beginning(std::string_view text) const {
    if (symbols_.may_begin(text[0]))
      if (const size_t bytes = symbols_.longest_prefix(text).bytes; bytes > 0) return {text.substr(0, bytes), bytes};
    if (map_)
      if (const auto entry = map_->longest(text)) return {entry->replacement, entry->bytes};
    const CodePoint point = code_point_at(text, 0);
    if (point.value == kNotUtf8) return {kReplacement, 1};
    return {text.substr(0, static_cast<size_t>(point.bytes)), static_cast<size_t>(point.bytes)};
  }

  std::optional<Charsmap> map_;
  bool dummy_prefix_, trim_;
  std::string_view space_;
  bool as_suffix_;
  ByteTrie symbols_;
  std::string source_;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string_view bytes, SentencePieceFile file, const std::string& source)
      : bytes_(bytes), file_(std::move(file)), normalizer_(file_, source) {
    segmentation_ = file_.bpe ? bpe_segmentation(file_) : unigram_segmentation(file_);
    for (size_t id = 0; id < file_.pieces.size(); ++id)
      if (file_.pieces[id].type == PieceType::Control) special_ids_.emplace(file_.pieces[id].text, static_cast<int32_t>(id));
  }

  std::string name() const override { return "sentencepiece"; }
  int64_t vocabulary_size() const override { return static_cast<int64_t>(file_.pieces.size()); }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    segmentation_->encode(normalizer_.normalize(text), ids);
    return ids;
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::string text, bytes;
    bool at_start = true, space_seen = false;
    for (int32_t id : ids) {
      if (id < 0 || id >= vocabulary_size())
        throw DataError(ExitCode::Usage, fmt::format("token {} is outside the vocabulary of {}", id, vocabulary_size()));
      const SentencePiece& piece = file_.pieces[id];
      if (piece.type == PieceType::Byte) {
        bytes += static_cast<char>(byte_of_name(piece.text));
        continue;
      }
      append_bytes(text, bytes);
      if (space_seen || !text.empty()) at_start = false;
      space_seen = append_piece(text, piece, at_start);
    }
    append_bytes(text, bytes);
    return text;
  }

  std::string to_text() const override {
    return nlohmann::ordered_json{{"trivet_tokenizer", "sentencepiece"}, {"model", to_base64(bytes_)}}.dump() + "\n";
  }

  int32_t special_id(std::string_view name) const override {
    const auto found = special_ids_.find(name);
    return found == special_ids_.end() ? -1 : found->second;
  }

  size_t piece_bytes(std::string_view text, size_t) const override { return text.size(); }
  std::string token_name(int32_t id) const override { return has_token(id) ? file_.pieces[id].text : ""; }

 private:
  // Returns whether a space in front of the text was left out.
  bool append_piece(std::string& text, const SentencePiece& piece, bool at_start) const {
    if (piece.type == PieceType::Control) return false;
    if (piece.type == PieceType::Unknown) {
      text += file_.unknown_surface;
      return false;
    }
    std::string_view rest = piece.text;
    bool left_out = false;
    if (at_start && (file_.add_dummy_prefix || file_.remove_extra_whitespaces) && rest.starts_with(kSpace)) {
      rest.remove_prefix(kSpace.size());
      left_out = !file_.remove_extra_whitespaces;
    }
    while (!rest.empty()) {
      const size_t space = std::min(rest.find(kSpace), rest.size());
      text += rest.substr(0, space);
      if (space == rest.size()) break;
      text += ' ';
      rest.remove_prefix(space + kSpace.size());
    }
    return left_out;
  }

  // Bytes that are not UTF-8 become U+FFFD.
  static void append_bytes(std::string& text, std::string& bytes) {
    for_each_code_point(
        bytes, [&](char32_t c, std::string_view of_character) { text += c == kNotUtf8 ? kReplacement : of_character; });
    bytes.clear();
  }

  std::string bytes_;
  SentencePieceFile file_;
  std::map<std::string, int32_t, std::less<>> special_ids_;
  SentencePieceNormalizer normalizer_;
  std::unique_ptr<Segmentation> segmentation_;
};

}  // namespace

std::shared_ptr<Tokenizer> sentencepiece_tokenizer(std::string_view file, const std::string& source) {
  return std::make_shared<SentencePieceTokenizer>(file, read_sentencepiece(file, source), source);
}

}  // namespace trivet::data
