#include "data/tokenizers/sentencepiece.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base64.h"
#include "core/error.h"
#include "core/utf8.h"
#include "data/data_error.h"
#include "data/tokenizers/byte_trie.h"
#include "data/tokenizers/charsmap.h"
#include "data/tokenizers/code_points.h"
#include "data/tokenizers/decoders.h"
#include "data/tokenizers/joined_characters.h"
#include "data/tokenizers/merges.h"
#include "data/tokenizers/rewritten_size.h"
#include "data/tokenizers/sentencepiece_file.h"
#include "data/tokenizers/vocabulary.h"
#include "data/tokenizers/word_cache.h"

namespace trivet::data {
namespace {

constexpr std::string_view kSpace = "\u2581", kReplacement = "\uFFFD";

bool is_text_piece(const SentencePiece& piece) {
  return piece.type == PieceType::Normal || piece.type == PieceType::UserDefined || piece.type == PieceType::Unused;
}

// Pieces that are recognized in the text before anything else.
ByteTrie user_defined(const SentencePieceFile& file) {
  ByteTrie trie;
  for (size_t id = 0; id < file.pieces.size(); ++id)
    if (file.pieces[id].type == PieceType::UserDefined) trie.add(file.pieces[id].text, static_cast<int32_t>(id));
  return trie;
}

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

// Splits normalized text into pieces.
class Segmentation {
 public:
  virtual ~Segmentation() = default;
  virtual void encode(std::string_view normalized, std::vector<int32_t>& ids) const = 0;
};

// The ids of an unknown character, with which `ids` may end already.
class Unknowns {
 public:
  explicit Unknowns(const SentencePieceFile& file) : id_(file.unknown), bytes_(file.byte_fallback ? 256 : 0) {
    if (!file.byte_fallback) return;
    for (size_t id = 0; id < file.pieces.size(); ++id)
      if (const int byte = byte_of_name(file.pieces[id].text); byte >= 0 && file.pieces[id].type == PieceType::Byte)
        bytes_[byte] = static_cast<int32_t>(id);
  }
  void append(std::string_view character, std::vector<int32_t>& ids) const {
    if (bytes_.empty() && !ids.empty() && ids.back() == id_) return;
    if (bytes_.empty()) ids.push_back(id_);
    for (char byte : bytes_.empty() ? std::string_view() : character) ids.push_back(bytes_[static_cast<uint8_t>(byte)]);
  }
  int32_t id() const { return id_; }

 private:
  int32_t id_;
  std::vector<int32_t> bytes_;
};

// The path whose pieces have the largest sum of scores, added as floats from the beginning of the text, as sentencepiece 0.2.3
// does: which of two almost equal paths wins depends on the rounding. Where a sum is below -100,000, counting starts again from
// there.
class UnigramSegmentation final : public Segmentation {
 public:
  explicit UnigramSegmentation(const SentencePieceFile& file) : unknowns_(file) {
    float least = std::numeric_limits<float>::max();
    for (const SentencePiece& piece : file.pieces)
      if (piece.type == PieceType::Normal) least = std::min(least, piece.score);
    unknown_score_ = least - 10.0F;
    for (size_t id = 0; id < file.pieces.size(); ++id) {
      const SentencePiece& piece = file.pieces[id];
      scores_.push_back(piece.type == PieceType::UserDefined ? score_of_user_defined(piece.text) : piece.score);
      if (!is_text_piece(piece) || piece.type == PieceType::Unused) continue;
      pieces_.add(piece.text, static_cast<int32_t>(id));
      joined_.add(piece.text);
    }
  }

  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::vector<Step> steps(1);
    size_t start = 0;  // steps[i] ends at text[start + i]
    char32_t previous = kNotUtf8;
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = code_point_at(text, at);
      if (at - start >= kBlockBytes && !joined_.may_join(previous, point.value)) {  // every path goes through here
        const float score = steps[at - start].score;
        append(text.substr(start, at - start), steps, ids);
        steps.assign(1, {.score = score});
        start = at;
      }
      if (steps[at - start].score < kLeastSum) count_from(at - start, steps);
      extend(text, at, static_cast<size_t>(point.bytes), start, steps);
      previous = point.value;
      at += static_cast<size_t>(point.bytes);
    }
    append(text.substr(start), steps, ids);
  }

 private:
  static constexpr size_t kBlockBytes = 4096;
  static constexpr float kLeastSum = -100000;
  static constexpr int32_t kNone = -1;
  // The best way to a place in the text, and its last piece.
  struct Step {
    float score = 0;
    uint32_t bytes = 0;
    int32_t id = kNone;
  };

  // Whatever score the file has for it.
  static float score_of_user_defined(std::string_view piece) { return 0.1F * (static_cast<float>(piece.size()) - 1); }

  // The sums from `place` on become sums since `place`.
  static void count_from(size_t place, std::vector<Step>& steps) {
    const float before = steps[place].score;
    for (size_t i = place; i < steps.size(); ++i) steps[i].score -= before;
  }

  void extend(std::string_view text, size_t at, size_t character, size_t start, std::vector<Step>& steps) const {
    const float here = steps[at - start].score;
    bool has_character = false;
    const auto consider = [&](size_t bytes, int32_t id, float score) {
      const size_t to = at + bytes - start;
      if (steps.size() <= to) steps.resize(to + 1);
      Step& step = steps[to];
      if (step.id == kNone || score > step.score) step = {score, static_cast<uint32_t>(bytes), id};
    };
    pieces_.for_each_prefix(text.substr(at), [&](size_t bytes, int32_t id) {
      consider(bytes, id, scores_[id] + here);
      has_character = has_character || bytes == character;
    });
    if (!has_character) consider(character, unknowns_.id(), unknown_score_ + here);
  }

  void append(std::string_view text, const std::vector<Step>& steps, std::vector<int32_t>& ids) const {
    std::vector<size_t> ends;
    for (size_t end = text.size(); end > 0; end -= steps[end].bytes) ends.push_back(end);
    for (size_t i = ends.size(); i-- > 0;) {
      const Step& step = steps[ends[i]];
      if (step.id == unknowns_.id())
        unknowns_.append(text.substr(ends[i] - step.bytes, step.bytes), ids);
      else
        ids.push_back(step.id);
    }
  }

  Unknowns unknowns_;
  ByteTrie pieces_;
  JoinedCharacters joined_;
  std::vector<float> scores_;
  float unknown_score_ = 0;
};

// Two neighbours are joined if they make a piece, the piece with the highest score first, leftmost first.
class BpeSegmentation final : public Segmentation {
 public:
  explicit BpeSegmentation(const SentencePieceFile& file)
      : pieces_(static_cast<int32_t>(file.pieces.size())), unknowns_(file), user_defined_(user_defined(file)) {
    for (size_t id = 0; id < file.pieces.size(); ++id) {
      if (!is_text_piece(file.pieces[id])) continue;
      ids_.add(file.pieces[id].text, static_cast<int32_t>(id));
      joined_.add(file.pieces[id].text);
    }
    std::map<float, int32_t, std::greater<>> rank;  // pieces of one score are joined from left to right
    for (const SentencePiece& piece : file.pieces) rank.emplace(piece.score, 0);
    int32_t next = 0;
    for (auto& [score, number] : rank) number = next++;
    for (size_t id = 0; id < file.pieces.size(); ++id)
      if (is_text_piece(file.pieces[id]))
        add_merges(file.pieces[id].text, rank.at(file.pieces[id].score), static_cast<int32_t>(id));
  }

  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    WordCaches::Borrowed cache(caches_);
    size_t start = 0;
    char32_t previous = kNotUtf8;
    for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
      const size_t at = bytes.data() - text.data();
      if (at > start && !joined_.may_join(previous, c)) {
        encode_part(text.substr(start, at - start), *cache, ids);
        start = at;
      }
      previous = c;
    });
    if (start < text.size()) encode_part(text.substr(start), *cache, ids);
  }

 private:
  // Symbols are ids of pieces; from pieces_ on, characters that are no piece by themselves; from kFrozen on, pieces that were
  // recognized in the text and are not joined.
  static constexpr int32_t kFrozen = 1 << 29;

  int32_t symbol_of(std::string_view text) {
    const int32_t id = ids_.find(text);
    if (id >= 0) return id;
    if (code_point_at(text, 0).bytes != static_cast<int>(text.size())) return -1;
    const int32_t known = characters_.find(text);
    if (known >= 0) return known;
    const auto made = pieces_ + static_cast<int32_t>(characters_.size());
    characters_.add(std::string(text), made);
    texts_.emplace_back(text);
    return made;
  }

  void add_merges(std::string_view piece, int32_t rank, int32_t id) {
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      if ((static_cast<unsigned char>(piece[cut]) & 0xC0) == 0x80) continue;
      const int32_t left = symbol_of(piece.substr(0, cut)), right = symbol_of(piece.substr(cut));
      if (left >= 0 && right >= 0) merges_.add(left, right, rank, id);
    }
  }

  void encode_part(std::string_view part, WordCache& cache, std::vector<int32_t>& ids) const {
    const WordCache::Found found = cache.find(part);
    if (found.known && !(ids.empty() ? false : ids.back() == unknowns_.id())) {
      ids.insert(ids.end(), found.ids.begin(), found.ids.end());
      return;
    }
    std::vector<int32_t> encoded;
    encode_symbols(part, encoded);
    cache.add(part, encoded);
    const bool fuse = !encoded.empty() && !ids.empty() && encoded[0] == unknowns_.id() && ids.back() == unknowns_.id();
    ids.insert(ids.end(), encoded.begin() + (fuse ? 1 : 0), encoded.end());
  }

  void encode_symbols(std::string_view part, std::vector<int32_t>& ids) const {
    std::vector<int32_t> symbols;
    std::vector<std::string_view> unknown;  // the characters for which a symbol is -2, -3, ...
    for (size_t at = 0; at < part.size();) {
      const ByteTrie::Match defined =
          user_defined_.may_begin(part[at]) ? user_defined_.longest_prefix(part.substr(at)) : ByteTrie::Match{};
      if (defined.bytes > 0) {
        symbols.push_back(kFrozen + defined.value);
        at += defined.bytes;
        continue;
      }
      const std::string_view character = part.substr(at, static_cast<size_t>(code_point_at(part, at).bytes));
      int32_t symbol = ids_.find(character);
      if (symbol < 0) symbol = characters_.find(character);
      if (symbol < 0) {
        unknown.push_back(character);
        symbol = -1 - static_cast<int32_t>(unknown.size());
      }
      symbols.push_back(symbol);
      at += character.size();
    }
    merges_.apply(symbols);
    for (int32_t symbol : symbols) {
      if (symbol < 0)
        unknowns_.append(unknown[-symbol - 2], ids);
      else if (symbol >= kFrozen)
        ids.push_back(symbol - kFrozen);
      else if (symbol >= pieces_)
        unknowns_.append(texts_[symbol - pieces_], ids);
      else
        ids.push_back(symbol);
    }
  }

  int32_t pieces_;
  Unknowns unknowns_;
  ByteTrie user_defined_;
  TokenIds ids_, characters_;
  std::vector<std::string> texts_;  // texts of characters_
  MergeTable merges_{0};
  JoinedCharacters joined_;
  mutable WordCaches caches_;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string_view bytes, SentencePieceFile file, const std::string& source)
      : bytes_(bytes), file_(std::move(file)), normalizer_(file_, source) {
    if (file_.bpe)
      segmentation_ = std::make_unique<BpeSegmentation>(file_);
    else
      segmentation_ = std::make_unique<UnigramSegmentation>(file_);
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
