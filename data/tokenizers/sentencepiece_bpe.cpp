#include "data/tokenizers/sentencepiece_segmentation.h"

#include <functional>
#include <map>
#include <string>

#include "data/tokenizers/code_points.h"
#include "data/tokenizers/joined_characters.h"
#include "data/tokenizers/merges.h"
#include "data/tokenizers/vocabulary.h"
#include "data/tokenizers/word_cache.h"

namespace trivet::data {
namespace {

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

}  // namespace

std::unique_ptr<Segmentation> bpe_segmentation(const SentencePieceFile& file) {
  return std::make_unique<BpeSegmentation>(file);
}

}  // namespace trivet::data
