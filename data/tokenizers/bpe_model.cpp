#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "data/tokenizers/code_points.h"
#include "data/tokenizers/models.h"

namespace trivet::data {
namespace {

constexpr size_t kLongWordBytes = 32;

class BpeModel final : public WordModel {
 public:
  explicit BpeModel(BpeOptions options) : options_(std::move(options)), bytes_(options_.ids) {
    for (int byte = 0; byte < 256; ++byte) {
      const char text = static_cast<char>(byte);
      id_of_byte_[byte] = options_.ids.find({&text, 1});
    }
    // Unknown characters would not be fused, or moved past bytes, over a cut.
    can_cut_ = !options_.byte_level && options_.end_of_word.empty() &&
               (options_.unknown < 0 || (options_.byte_fallback ? bytes_.has_all() : !options_.fuse_unknown));
    if (can_cut_) options_.ids.for_each([&](const std::string& token, int32_t) { joined_.add(token); });
  }

  std::string name() const override { return "bpe"; }

  void encode(std::string_view word, std::vector<int32_t>& ids) const override {
    if (options_.whole_words_first) {
      const int32_t whole = options_.ids.find(word);
      if (whole >= 0) return ids.push_back(whole);
    }
    std::vector<int32_t> symbols;
    symbols.reserve(word.size());
    options_.byte_level ? begin_with_bytes(word, symbols) : begin_with_characters(word, symbols);
    options_.merges.apply(symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  }

  void for_each_part(std::string_view word, const std::function<void(std::string_view)>& visit) const override {
    if (!can_cut_ || word.size() <= kLongWordBytes) return visit(word);
    size_t start = 0;
    char32_t previous = kNotUtf8;
    for_each_code_point(word, [&](char32_t c, std::string_view bytes) {
      const size_t at = bytes.data() - word.data();
      if (at > start && !joined_.may_join(previous, c)) {
        visit(word.substr(start, at - start));
        start = at;
      }
      previous = c;
    });
    visit(word.substr(start));
  }

 private:
  void begin_with_bytes(std::string_view word, std::vector<int32_t>& symbols) const {
    for (char c : word) symbols.push_back(id_of_byte_[static_cast<uint8_t>(c)]);
    if (!options_.end_of_word.empty() && !word.empty())
      symbols.back() = options_.ids.find(std::string(1, word.back()) + options_.end_of_word);
  }

  void begin_with_characters(std::string_view word, std::vector<int32_t>& symbols) const {
    bool unknown = false;  // an unknown character, which comes after bytes that follow it, as in the library tokenizers
    const auto add_unknown = [&] {
      if (unknown) symbols.push_back(options_.unknown);
      unknown = false;
    };
    for_each_code_point(word, [&](char32_t, std::string_view bytes) {
      const bool last = bytes.data() + bytes.size() == word.data() + word.size();
      const int32_t id = last && !options_.end_of_word.empty() ? options_.ids.find(std::string(bytes) + options_.end_of_word)
                                                               : options_.ids.find(bytes);
      if (id >= 0) {
        add_unknown();
        symbols.push_back(id);
      } else if (!options_.byte_fallback || !bytes_.append(bytes, symbols)) {
        if (!options_.fuse_unknown) add_unknown();
        unknown = options_.unknown >= 0;
      }
    });
    add_unknown();
  }

  BpeOptions options_;
  ByteTokens bytes_;
  std::array<int32_t, 256> id_of_byte_{};
  JoinedCharacters joined_;
  bool can_cut_ = false;
};

}  // namespace

ByteTokens::ByteTokens(const TokenIds& ids) {
  for (size_t byte = 0; byte < ids_.size(); ++byte) ids_[byte] = ids.find(fmt::format("<0x{:02X}>", byte));
}

bool ByteTokens::has_all() const { return std::ranges::find(ids_, -1) == ids_.end(); }

bool ByteTokens::append(std::string_view text, std::vector<int32_t>& ids) const {
  const auto id_of = [&](char byte) { return ids_[static_cast<uint8_t>(byte)]; };
  if (std::ranges::any_of(text, [&](char byte) { return id_of(byte) < 0; })) return false;
  std::ranges::transform(text, std::back_inserter(ids), id_of);
  return true;
}

std::unique_ptr<WordModel> make_bpe_model(BpeOptions options) { return std::make_unique<BpeModel>(std::move(options)); }

}  // namespace trivet::data
